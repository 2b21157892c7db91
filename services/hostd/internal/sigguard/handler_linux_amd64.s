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

// DI is the signal, SI its siginfo, whose third word is above 0 if the kernel found a
// fault, DX an argument of the runtime's handler. Signals above 31 are not faults, and
// neither is 16 (SIGSTKFLT), for which F_SETSIG also sets a word above 0.
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
