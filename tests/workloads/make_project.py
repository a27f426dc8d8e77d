"""Writes a small C project with a Makefile: N sources, a library, a program that checks itself. usage: make_project.py DIR [N]"""
import pathlib
import sys

SOURCE = """#include "parts.h"
static unsigned table[{size}];
unsigned part_{n}(unsigned x) {{
  for (unsigned i = 0; i < {size}; i++) table[i] = x * {factor}u + i;
  unsigned sum = 0;
  for (unsigned i = 0; i < {size}; i++) sum ^= table[i] * (i + 1u);
  return sum + {n}u;
}}
"""
MAIN = """#include <stdio.h>
#include "parts.h"
int main(void) {{
  unsigned sum = 0;
{calls}
  printf("ok {count} parts %u\\n", sum);
  return 0;
}}
"""
MAKEFILE = """OBJECTS = {objects}
all: program
\t./program > result
program: main.o libparts.a
\t$(CC) -o $@ main.o -L. -lparts
libparts.a: $(OBJECTS)
\trm -f $@
\tar rcs $@ $(OBJECTS)
%.o: %.c parts.h
\t$(CC) -O1 -c -o $@ $<
clean:
\trm -f *.o *.a program result
"""


def write_project(directory, count):
    directory.mkdir(parents=True, exist_ok=True)
    numbers = range(count)
    for n in numbers:
        (directory / f"part_{n}.c").write_text(SOURCE.format(n=n, size=64 + n, factor=2 * n + 3))
    (directory / "parts.h").write_text("".join(f"unsigned part_{n}(unsigned x);\n" for n in numbers))
    calls = "\n".join(f"  sum += part_{n}(sum);" for n in numbers)
    (directory / "main.c").write_text(MAIN.format(calls=calls, count=count))
    (directory / "Makefile").write_text(MAKEFILE.format(objects=" ".join(f"part_{n}.o" for n in numbers)))


if __name__ == "__main__":
    write_project(pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12)
