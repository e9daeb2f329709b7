/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first sector of the disk: loads SECTORS sectors behind it to 64 KiB, goes to 64 bits with the first GiB mapped
 * one to one and AVX-512 switched on, and jumps to what was loaded. For an emulator only: no fault is dealt with.
 */
    .code16
    .globl _start
_start:
    ljmp $0, $1f
1:  cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7C00, %sp
    movb %dl, drive
2:  movb $0x42, %ah             /* one sector a call, by number */
    movb drive, %dl
    movw $packet, %si
    int $0x13
    jc failed
    addw $32, packet + 6        /* 512 bytes on, as a segment */
    incl packet + 8
    decw left
    jnz 2b
    inb $0x92, %al              /* the A20 gate */
    orb $2, %al
    outb %al, $0x92
    lgdt gdt_pointer
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmp $8, $protected
failed:
    movb $'!', %al
    outb %al, $0xE9
    hlt

    .code32
protected:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $0x1000, %edi          /* page tables: one of each level, 512 pages of 2 MiB */
    xorl %eax, %eax
    movl $0xC00, %ecx
    rep stosl
    movl $0x2003, 0x1000
    movl $0x3003, 0x2000
    movl $0x3000, %edi
    movl $0x83, %eax
3:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    cmpl $0x4000, %edi
    jb 3b
    movl $0x1000, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x40620, %eax          /* PAE, OSFXSR, OSXMMEXCPT, OSXSAVE */
    movl %eax, %cr4
    movl $0xC0000080, %ecx      /* EFER.LME */
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    andl $0xFFFFFFFB, %eax      /* no emulation of the FPU */
    orl $0x80000002, %eax
    movl %eax, %cr0
    ljmp $24, $0x10000

    .balign 8
gdt:
    .quad 0
    .quad 0x00CF9A000000FFFF    /* code, 32 bits */
    .quad 0x00CF92000000FFFF    /* data */
    .quad 0x00AF9A000000FFFF    /* code, 64 bits */
gdt_pointer:
    .word gdt_pointer - gdt - 1
    .long gdt
packet:
    .byte 16, 0
    .word 1, 0, 0x1000          /* sectors, offset, segment */
    .quad 1                     /* first sector */
left:
    .word SECTORS
drive:
    .byte 0
    .org 510
    .word 0xAA55
