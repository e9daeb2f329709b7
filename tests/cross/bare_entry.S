/* SPDX-License-Identifier: Apache-2.0 */
/* The first instructions of what the boot sector loads: all vector state on, a stack, zeroed memory, then C. */
    .section .entry, "ax"
    .globl bare_entry
bare_entry:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movq $bare_stack_end, %rsp
    xorl %ecx, %ecx             /* XCR0: x87, SSE, AVX and the three parts of AVX-512 */
    xorl %edx, %edx
    movl $0xE7, %eax
    xsetbv
    movq $bare_bss, %rdi
    movq $bare_bss_end, %rcx
    subq %rdi, %rcx
    xorl %eax, %eax
    rep stosb
    call bare_main
1:  hlt
    jmp 1b
    .section .note.GNU-stack, "", @progbits
