#include "textflag.h"

GLOBL faults<>(SB), NOPTR, $8

// func handlerFor(faults uintptr) uintptr
TEXT ·handlerFor(SB), NOSPLIT, $0-16
	MOVQ faults<>(SB), AX
	TESTQ AX, AX
	JNE  have
	MOVQ faults+0(FP), AX
	MOVQ AX, faults<>(SB)

have:
	MOVQ $handler<>(SB), AX
	MOVQ AX, ret+8(FP)
	RET

// DI is the signal, SI its siginfo, whose third word is above 0 where the kernel found a
// fault, DX what the runtime needs besides. What is above 31 is no fault's signal, and
// neither is 16 (SIGSTKFLT), for which F_SETSIG gives a word above 0, too.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0-0
	CMPL DI, $31
	JGT  sent
	CMPL DI, $16
	JEQ  sent
	CMPL 8(SI), $0
	JLE  sent
	MOVQ faults<>(SB), AX
	JMP  AX

sent:
	RET
