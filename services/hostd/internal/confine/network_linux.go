//go:build amd64 || arm64

package confine

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in a seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16 // the lower half: both architectures are little-endian
)

const refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)

// networkFilter returns a filter that refuses the network.
func networkFilter() ([]bpf.RawInstruction, error) {
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: maxNumber, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
	}
	for _, number := range []uint32{unix.SYS_CONNECT, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER} {
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, bpf.RetConstant{Val: refuse})
	}
	return bpf.Assemble(append(prog,
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKETPAIR, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.LoadAbsolute{Off: dataArg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	))
}
