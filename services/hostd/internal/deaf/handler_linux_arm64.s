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

// R0 is the signal, R1 its siginfo, whose third word is above 0 where the kernel found a
// fault, R2 what the runtime needs besides. What is above 31 is no fault's signal, and
// neither is 16 (SIGSTKFLT), for which F_SETSIG gives a word above 0, too.
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
