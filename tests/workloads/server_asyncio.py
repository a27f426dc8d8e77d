"""An asyncio server and eight asyncio clients in four other processes. usage: server_asyncio.py [REQUESTS]"""
import asyncio
import os
import sys

PROCESSES = 4
CLIENTS_PER_PROCESS = 2


async def client(port, number, requests):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for i in range(requests):
        line = f"{number}:{i}:{os.urandom(8).hex()}\n".encode()
        writer.write(line)
        await writer.drain()
        assert await reader.readline() == line.upper()
        if i % 10 == number % 10:
            await asyncio.sleep(0.001)
    writer.close()
    await writer.wait_closed()


async def clients(port, first, requests):
    await asyncio.gather(*(client(port, first + i, requests) for i in range(CLIENTS_PER_PROCESS)))


async def serve(started, expected):
    log, all_served = [], asyncio.Event()

    async def handle(reader, writer):
        while line := await reader.readline():
            log.append(line)
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        if len(log) == expected:
            all_served.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    started(server.sockets[0].getsockname()[1])
    await all_served.wait()
    server.close()
    return log


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    readable, writable = os.pipe()
    children = []
    for process in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            os.close(writable)
            port = int.from_bytes(os.read(readable, 4), "big")
            asyncio.run(clients(port, process * CLIENTS_PER_PROCESS, requests))
            os._exit(0)
        children.append(pid)
    os.close(readable)

    def started(port):
        for _ in children:
            os.write(writable, port.to_bytes(4, "big"))

    expected = PROCESSES * CLIENTS_PER_PROCESS * requests
    log = asyncio.run(serve(started, expected))
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert len(log) == expected
    print(f"ok {len(log)} requests, order {hash(b''.join(log)) & 0xffffffffffff:x}")


if __name__ == "__main__":
    main()
