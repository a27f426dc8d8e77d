"""A multiprocessing pool: tasks and results go through pipes. usage: pool.py [TASKS]"""
import hashlib
import multiprocessing
import os
import sys


def solve(number):
    digest = str(number).encode()
    for _ in range(2000):
        digest = hashlib.sha256(digest).digest()
    return number, digest.hex(), os.getpid()


def main():
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with multiprocessing.get_context("fork").Pool(3) as pool:
        results = list(pool.imap_unordered(solve, range(tasks), chunksize=2))
    assert sorted(number for number, _, _ in results) == list(range(tasks))
    for number, found, _ in results[:5]:
        assert solve(number)[1] == found
    order = hashlib.sha256(repr(results).encode()).hexdigest()[:16]
    print(f"ok {tasks} tasks by {len({pid for _, _, pid in results})} workers, order {order}")


if __name__ == "__main__":
    main()
