// A program whose unwind tables and symbols harm a process that trusts them when it looks at the stack: misleading_frames WAY. It asks
// for its parent's process group in a function
//   endless    whose frame is found by an expression (DWARF 4, 2.5) that jumps to itself
//   deep       ... that pushes without end
//   far        ... that reads where nothing is
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STANDS(name, expression)                       \
  int name(void);                                      \
  __asm__(".pushsection .text\n"                       \
          ".globl " #name "\n"                         \
          ".type " #name ", @function\n"               \
          #name ":\n"                                  \
          ".cfi_startproc\n"                           \
          ".cfi_escape " expression "\n"               \
          "mov $110, %eax\n" /* getppid(2) */          \
          "syscall\n"                                  \
          "mov %eax, %edi\n"                           \
          "mov $121, %eax\n" /* getpgid(2) */          \
          "syscall\n"                                  \
          "ret\n"                                      \
          ".cfi_endproc\n"                             \
          ".size " #name ", . - " #name "\n"           \
          ".popsection\n")

// DW_CFA_def_cfa_expression, length, then DW_OP_skip; DW_OP_lit0, DW_OP_skip; DW_OP_const8u, DW_OP_deref.
STANDS(endless, "0x0f, 3, 0x2f, 0xfd, 0xff");
STANDS(deep, "0x0f, 4, 0x30, 0x2f, 0xfc, 0xff");
STANDS(far, "0x0f, 10, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x06");

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*stand)(void);
  } ways[] = {{"endless", endless}, {"deep", deep}, {"far", far}};
  for (unsigned i = 0; argc == 2 && i < sizeof ways / sizeof *ways; i++) {
    if (strcmp(argv[1], ways[i].name) != 0) continue;
    const int group = getpgid(getppid());
    return puts(ways[i].stand() == group ? "ok" : "WRONG") < 0;
  }
  return 1;
}
