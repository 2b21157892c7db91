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
// fault. What is above 31 is no fault's signal.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0-0
	CMPW $31, R0
	BGT  sent
	MOVW 8(R1), R2
	CMPW $0, R2
	BLE  sent
	MOVD faults<>(SB), R3
	JMP  (R3)

sent:
	RET
