//go:build linux

package namespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// A sandbox of the host template has a sudo of its own, whether the host has one or not:
// the host's would read sudoers, which is unreadable inside. It is the shim's binary
// (package sudo), which all sandboxes share in their copy of /etc, under an unmapped owner;
// the set-uid part, each sandbox's own, is a stub of 200 bytes that executes it. So nothing
// is set-uid on the host, and nothing is copied for each sandbox.
const (
	sudoDir  = "millrace"
	sudoFile = sudoDir + "/sudo" // in /etc
)

// withSudo adds the stub to files.
func withSudo(files []nsinit.File) []nsinit.File {
	stub, ok := sudoStub(runtime.GOARCH, "/etc/"+sudoFile)
	if !ok {
		return files
	}
	return append(files, nsinit.File{Name: "usr/bin/sudo", Body: string(stub), Mode: 0o4755})
}

// copySudo copies the program into a copy of /etc.
func copySudo(program, etc string) error {
	if program == "" {
		return nil
	}
	if err := os.Mkdir(filepath.Join(etc, sudoDir), 0o755); err != nil {
		return err
	}
	src, err := os.Open(program)
	if err != nil {
		return err
	}
	defer src.Close()
	to := filepath.Join(etc, sudoFile)
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close(), os.Chmod(to, 0o755)) // independent of the umask
}

// fingerprintOf returns a fingerprint of a program; empty for none.
func fingerprintOf(program string) (string, error) {
	if program == "" {
		return "", nil
	}
	var st unix.Stat_t
	if err := unix.Stat(program, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: program, Err: err}
	}
	return fmt.Sprintf("sudo %d %d %d %d", st.Dev, st.Ino, st.Size, st.Mtim.Nano()), nil
}

// sudoStub returns a program that executes another one with its own arguments, environment
// and privileges, and exits with 127 if it cannot.
func sudoStub(arch, path string) ([]byte, bool) {
	var code []byte
	var machine uint16
	switch arch {
	case "amd64":
		machine = 62 // EM_X86_64
		code = []byte{
			0x48, 0x8b, 0x0c, 0x24, // mov rcx, [rsp]: argc
			0x48, 0x8d, 0x74, 0x24, 0x08, // lea rsi, [rsp+8]: argv
			0x48, 0x8d, 0x54, 0xce, 0x08, // lea rdx, [rsi+rcx*8+8]: envp
			0x48, 0x8d, 0x3d, 19, 0, 0, 0, // lea rdi, [rip+19]: the path
			0xb8, 59, 0, 0, 0, // mov eax, SYS_execve
			0x0f, 0x05, // syscall
			0xbf, 127, 0, 0, 0, // mov edi, 127
			0xb8, 231, 0, 0, 0, // mov eax, SYS_exit_group
			0x0f, 0x05, // syscall
		}
	case "arm64":
		machine = 183 // EM_AARCH64
		for _, op := range []uint32{
			0xf94003e3, // ldr x3, [sp]: argc
			0x910023e1, // add x1, sp, #8: argv
			0x8b030c22, // add x2, x1, x3, lsl #3
			0x91002042, // add x2, x2, #8: envp
			0x100000c0, // adr x0, .+24: the path
			0xd2801ba8, // mov x8, SYS_execve
			0xd4000001, // svc #0
			0xd2800fe0, // mov x0, #127
			0xd2800bc8, // mov x8, SYS_exit_group
			0xd4000001, // svc #0
		} {
			code = binary.LittleEndian.AppendUint32(code, op)
		}
	default:
		return nil, false
	}
	return elfOf(machine, append(append(code, path...), 0)), true
}

// elfOf returns a minimal executable: an ELF header, a program header for its only
// segment, which is readable and executable, and the code.
func elfOf(machine uint16, code []byte) []byte {
	const base, header, segment = 0x400000, 64, 56
	size := uint64(header + segment + len(code))
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	for _, n := range []uint64{base + header + segment, header, 0} { // entry point, offset of the program headers, no sections
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{header, segment, 1, 64, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // PF_R | PF_X
	for _, n := range []uint64{0, base, base, size, size, 0x1000} {
		b = le.AppendUint64(b, n)
	}
	return append(b, code...)
}
