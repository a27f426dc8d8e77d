"""Chains of subprocesses: pipes between programs, a shell, a Python that starts another Python. usage: subprocesses.py [DEPTH]"""
import subprocess
import sys


def pipeline(text):
    first = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    second = subprocess.Popen(["tr", "a-z", "A-Z"], stdin=first.stdout, stdout=subprocess.PIPE)
    third = subprocess.Popen(["sort", "-r"], stdin=second.stdout, stdout=subprocess.PIPE, text=True)
    first.stdout.close()
    second.stdout.close()
    first.stdin.write(text.encode())
    first.stdin.close()
    out, _ = third.communicate()
    assert (first.wait(), second.wait(), third.returncode) == (0, 0, 0)
    return out


def main():
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    assert pipeline("b\na\nc\n" * 100) == "C\n" * 100 + "B\n" * 100 + "A\n" * 100
    shell = subprocess.run("echo $((6 * 7)); exit 3", shell=True, capture_output=True, text=True)
    assert (shell.stdout, shell.returncode) == ("42\n", 3)
    try:
        subprocess.run(["sleep", "60"], timeout=0.1)
        raise AssertionError("sleep ended")
    except subprocess.TimeoutExpired:
        pass
    total = 1
    if depth > 0:
        below = subprocess.run([sys.executable, __file__, str(depth - 1)], capture_output=True, text=True, check=True)
        assert below.stdout.startswith("ok ")
        total += int(below.stdout.split()[1])
    print(f"ok {total} levels")


if __name__ == "__main__":
    main()
