#include "textflag.h"

// The numbers are those of linux/arm64; block_linux.go describes the layout of a block.

// func fork(block uintptr) uintptr
TEXT ·fork(SB), NOSPLIT, $0-16
	MOVD block+0(FP), R19

	// Block all signals: the child shares the handlers, which are Go's.
	MOVD $2, R0 // rt_sigprocmask(SIG_SETMASK, all, old, 8)
	MOVD R19, R1
	ADD  $8, R19, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC

	ADD  $128, R19, R20 // the first step creates the child
	MOVD 0(R20), R8
	MOVD 8(R20), R0
	MOVD 16(R20), R1
	MOVD 24(R20), R2
	MOVD 32(R20), R3
	MOVD 40(R20), R4
	SVC
	CBZ  R0, next

	MOVD R0, ret+8(FP)
	MOVD $2, R0 // rt_sigprocmask(SIG_SETMASK, old, nil, 8)
	ADD  $8, R19, R1
	MOVD $0, R2
	MOVD $8, R3
	MOVD $135, R8
	SVC
	RET

next: // the child, which never returns
	ADD  $64, R20
	MOVD 0(R20), R8
	MOVD 8(R20), R0
	MOVD 16(R20), R1
	MOVD 24(R20), R2
	MOVD 32(R20), R3
	MOVD 40(R20), R4
	MOVD 48(R20), R5
	SVC
	MOVD 56(R20), R6
	CMP  $1, R6
	BEQ  next
	CMP  $2, R6
	BEQ  same
	CMN  $4095, R0
	BCC  next
	B    failed

same:
	MOVD 8(R20), R7
	CMP  R7, R0
	BEQ  next
	MOVD $-3, R0 // ESRCH

failed:
	NEG  R0, R0
	MOVD R0, 24(R19)

exit:
	MOVD $253, R0
	MOVD $93, R8
	SVC
	B    exit
