#include "textflag.h"

GLOBL faults<>(SB), NOPTR, $8

// func handlerFor(faults uintptr) uintptr
TEXT ·handlerFor(SB), NOSPLIT, $0-16
	MOVD faults<>(SB), R0
	CBNZ R0, have
	MOVD faults+0(FP), R0
	MOVD R0, faults<>(SB)

have:
	MOVD $handler<>(SB), R0
	MOVD R0, ret+8(FP)
	RET

// R0 is the signal, R1 its siginfo, whose third word is above 0 if the kernel found a fault,
// R2 an argument of the runtime's handler. Signals above 31 are not faults, and neither is
// 16 (SIGSTKFLT), for which F_SETSIG also sets a word above 0.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0-0
	CMPW $31, R0
	BGT  sent
	CMPW $16, R0
	BEQ  sent
	MOVW 8(R1), R3
	CMPW $0, R3
	BLE  sent
	MOVD faults<>(SB), R4
	JMP  (R4)

sent:
	RET
