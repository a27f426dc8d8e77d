"""Sets and gets by several clients at once, in the text protocol. usage: memcached_client.py PORT [KEYS]"""
import socket
import sys
import threading
import time

CLIENTS = 4


def connected(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)  # it has no other way to tell that it is ready
    raise SystemExit("no server")


def client(port, number, keys, failures):
    with connected(port) as connection, connection.makefile("rwb") as stream:
        for i in range(keys):
            value = f"{number}-{i}".encode() * (1 + i % 40)
            stream.write(b"set k%d-%d 0 0 %d\r\n%s\r\n" % (number, i, len(value), value))
            stream.flush()
            stored = stream.readline() == b"STORED\r\n"
            stream.write(b"get k%d-%d\r\n" % (number, i))
            stream.flush()
            header, body, end = stream.readline(), stream.readline(), stream.readline()
            if not stored or not header.startswith(b"VALUE ") or body != value + b"\r\n" or end != b"END\r\n":
                failures.append((number, i))


def main():
    port, keys = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500
    failures = []
    threads = [threading.Thread(target=client, args=(port, n, keys, failures)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:5]
    print(f"ok {CLIENTS * keys} keys")


if __name__ == "__main__":
    main()
