"""Processes that talk through multiprocessing.Pipe and nothing else (no shared semaphores). usage: pipes.py [TURNS]"""
import multiprocessing
import multiprocessing.connection
import sys


def worker(connection, number):
    while True:
        task = connection.recv()
        if task is None:
            break
        connection.send((number, task, sum(i * i for i in range(task % 3000))))
    connection.close()


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    context = multiprocessing.get_context("fork")
    connections, processes = [], []
    for number in range(3):
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, number))
        process.start()
        theirs.close()
        connections.append(ours)
        processes.append(process)
    for task, connection in enumerate(connections):
        connection.send(task)
    sent, received, order = len(connections), 0, 0
    while received < turns:
        for connection in multiprocessing.connection.wait(connections):
            number, task, value = connection.recv()
            assert value == sum(i * i for i in range(task % 3000))
            order = (order * 31 + number) % (1 << 61)
            received += 1
            if sent < turns:
                connection.send(sent * 17)
                sent += 1
    for connection in connections:
        connection.send(None)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    print(f"ok {received} results, order {order:x}")


if __name__ == "__main__":
    main()
