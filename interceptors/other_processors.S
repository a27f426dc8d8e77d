// Capstone's parts for processors other than x86-64, which redrive never asks for. They are here so that the linker does not take Capstone's own (3 MB) out
// of its library: both do nothing but return CS_ERR_ARCH.
.irp name, AArch64, ARM, BPF, EVM, M680X, M68K, MOS65XX, Mips, PPC, RISCV, SH, Sparc, SystemZ, TMS320C64x, TRICORE, WASM, XCore
.globl \name\()_global_init, \name\()_option
\name\()_global_init:
\name\()_option:
.endr
        mov $2, %eax
        ret
.section .note.GNU-stack, "", @progbits
