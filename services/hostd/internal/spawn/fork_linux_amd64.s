#include "textflag.h"

// The numbers are those of linux/amd64; block_linux.go describes the layout of a block.

// func fork(block uintptr) uintptr
TEXT ·fork(SB), NOSPLIT, $0-16
	MOVQ block+0(FP), R12

	// Block all signals: the child shares the handlers, which are Go's.
	MOVQ $14, AX // rt_sigprocmask(SIG_SETMASK, all, old, 8)
	MOVQ $2, DI
	MOVQ R12, SI
	LEAQ 8(R12), DX
	MOVQ $8, R10
	SYSCALL

	LEAQ 128(R12), R13 // the first step creates the child
	MOVQ 0(R13), AX
	MOVQ 8(R13), DI
	MOVQ 16(R13), SI
	MOVQ 24(R13), DX
	MOVQ 32(R13), R10
	MOVQ 40(R13), R8
	SYSCALL
	TESTQ AX, AX
	JEQ  next

	MOVQ AX, ret+8(FP)
	MOVQ $14, AX // rt_sigprocmask(SIG_SETMASK, old, nil, 8)
	MOVQ $2, DI
	LEAQ 8(R12), SI
	XORL DX, DX
	MOVQ $8, R10
	SYSCALL
	RET

next: // the child, which never returns
	ADDQ $64, R13
	MOVQ 0(R13), AX
	MOVQ 8(R13), DI
	MOVQ 16(R13), SI
	MOVQ 24(R13), DX
	MOVQ 32(R13), R10
	MOVQ 40(R13), R8
	MOVQ 48(R13), R9
	SYSCALL
	MOVQ 56(R13), BX
	CMPQ BX, $1
	JEQ  next
	CMPQ BX, $2
	JEQ  same
	CMPQ AX, $-4095
	JCS  next
	JMP  failed

same:
	CMPQ AX, 8(R13)
	JEQ  next
	MOVQ $-3, AX // ESRCH

failed:
	NEGQ AX
	MOVQ AX, 24(R12)

exit:
	MOVQ $60, AX
	MOVQ $253, DI
	SYSCALL
	JMP  exit
