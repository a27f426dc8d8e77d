# driven: a worker thread, a cluster of two, ten requests
# packages: nodejs
cat > a.js <<'X'
const cluster = require('cluster'), http = require('http'), {Worker, isMainThread, parentPort} = require('worker_threads');
if (cluster.isPrimary) {
  const w = new Worker("require('worker_threads').parentPort.postMessage(6*7)", {eval: true});
  w.on('message', m => { if (m !== 42) process.exit(1);
    cluster.fork(); const c = cluster.fork(); let n = 0;
    cluster.on('listening', (x, addr) => { if (++n === 2) { let left = 10; for (let i = 0; i < 10; i++) http.get({port: addr.port, host: '127.0.0.1', agent: false}, r => { r.resume(); r.on('end', () => { if (!--left) { for (const id in cluster.workers) cluster.workers[id].kill(); } }); }); } }); });
} else { http.createServer((q, r) => r.end('hello')).listen(+process.argv[2], '127.0.0.1'); }
X
node a.js $1
