// What a small Node job does: files, timers, hashes, worker threads that answer messages, HTTP on loopback, a child process.
// usage: node short_job.js REQUESTS
'use strict';
const assert = require('assert');
const child_process = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const timers = require('timers/promises');
const { Worker } = require('worker_threads');

const requests = Number(process.argv[2] || 100);
const hash = (text) => crypto.createHash('sha256').update(text).digest('hex');

async function files() {
  const lines = Array.from({ length: 1000 }, (_, i) => `${i} ${hash(String(i))}`).join('\n');
  await fs.promises.writeFile('lines.txt', lines);
  assert.strictEqual(await fs.promises.readFile('lines.txt', 'utf8'), lines);
  await fs.promises.rename('lines.txt', 'renamed.txt');
  assert.strictEqual((await fs.promises.stat('renamed.txt')).size, lines.length);
  await fs.promises.unlink('renamed.txt');
}

async function ticks() {
  let count = 0;
  const interval = setInterval(() => count++, 2);
  await timers.setTimeout(60);
  clearInterval(interval);
  assert(count > 5, `${count} ticks`);
}

const workerSource = `
const { parentPort } = require('worker_threads');
const crypto = require('crypto');
parentPort.on('message', (n) => {
  if (n === null) return parentPort.close();
  let value = String(n);
  for (let i = 0; i < 200; i++) value = crypto.createHash('sha256').update(value).digest('hex');
  parentPort.postMessage([n, value]);
});`;

function worker(first, count) {
  return new Promise((resolve, reject) => {
    const thread = new Worker(workerSource, { eval: true });
    let answers = 0;
    thread.on('message', ([n, value]) => {
      let expected = String(n);
      for (let i = 0; i < 200; i++) expected = hash(expected);
      assert.strictEqual(value, expected);
      if (++answers === count) thread.postMessage(null);
    });
    thread.on('error', reject);
    thread.on('exit', () => resolve(answers));
    for (let i = 0; i < count; i++) thread.postMessage(first + i);
  });
}

async function web() {
  const server = http.createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => response.end(hash(request.url + body)));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const port = server.address().port;
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const ask = (i) => new Promise((resolve, reject) => {
    const path = `/page${i}`, body = 'x'.repeat(i * 10);
    const request = http.request({ host: '127.0.0.1', port, path, method: 'POST', agent }, (response) => {
      let text = '';
      response.on('data', (chunk) => (text += chunk));
      response.on('end', () => resolve(assert.strictEqual(text, hash(path + body))));
    });
    request.on('error', reject);
    request.end(body);
  });
  await Promise.all(Array.from({ length: requests }, (_, i) => ask(i)));
  agent.destroy();
  await new Promise((resolve) => server.close(resolve));
}

async function main() {
  await files();
  await ticks();
  const answers = await Promise.all([worker(0, 30), worker(1000, 30)]);
  assert.deepStrictEqual(answers, [30, 30]);
  await web();
  assert.strictEqual(child_process.execFileSync('/bin/echo', ['from a child'], { encoding: 'utf8' }), 'from a child\n');
  console.log(`ok ${requests}`);
}
main().catch((error) => {
  console.log('WRONG', error);
  process.exitCode = 1;
});
