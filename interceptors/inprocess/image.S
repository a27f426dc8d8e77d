# The code inside tracees, as the supervisor carries it.
    .section .rodata
    .globl redrive_gate_code, redrive_gate_code_end
redrive_gate_code:
    .incbin GATE_IMAGE
redrive_gate_code_end:
    .section .note.GNU-stack, "", @progbits
