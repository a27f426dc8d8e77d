#!/usr/bin/env python3
"""terminal.py [TEXT KEYS]... -- COMMAND...: runs a command in a terminal of its own. Each time that the output has come to hold the next TEXT,
KEYS are typed ('^C' is one key). Prints the output, and ends with the command's status, 128 + N after signal N."""
import os
import pty
import sys


def main():
    split = sys.argv.index("--")
    steps = list(zip(sys.argv[1:split:2], sys.argv[2:split:2]))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[split + 1], sys.argv[split + 1:])
    output, searched = b"", 0
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # its other end is closed
            data = b""
        if not data:
            break
        output += data
        while steps and (at := output.find(steps[0][0].encode(), searched)) >= 0:
            text, keys = steps.pop(0)
            searched = at + len(text)
            os.write(terminal, bytes([ord(keys[1]) & 0x1f]) if keys.startswith("^") else keys.encode())
    sys.stdout.write(output.decode(errors="replace").replace("\r\n", "\n"))
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
