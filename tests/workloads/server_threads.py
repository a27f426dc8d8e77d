"""A TCP server with a thread per client, and eight clients in processes of their own. usage: server_threads.py [REQUESTS]"""
import os
import random
import socket
import sys
import threading

CLIENTS = 8


def receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def serve(connection, log, lock):
    with connection:
        while (header := receive(connection, 4)) is not None:
            body = receive(connection, int.from_bytes(header, "big"))
            with lock:
                log.append(body[:1])
            connection.sendall(header + body[::-1])


def client(port, number, requests):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(requests):
            body = bytes([number]) + os.urandom(random.randrange(1, 2000))
            connection.sendall(len(body).to_bytes(4, "big") + body)
            answer = receive(connection, 4 + len(body))
            assert answer[4:] == body[::-1]


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    listener = socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)
    port = listener.getsockname()[1]
    children = []
    for number in range(CLIENTS):
        pid = os.fork()
        if pid == 0:
            listener.close()
            random.seed()
            client(port, number, requests)
            os._exit(0)
        children.append(pid)
    log, lock, threads = [], threading.Lock(), []
    for _ in range(CLIENTS):
        connection, _ = listener.accept()
        thread = threading.Thread(target=serve, args=(connection, log, lock))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert len(log) == CLIENTS * requests
    print(f"ok {len(log)} requests, order {hash(b''.join(log)) & 0xffffffffffff:x}")


if __name__ == "__main__":
    main()
