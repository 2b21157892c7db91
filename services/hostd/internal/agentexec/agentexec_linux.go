package agentexec

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxProgram limits the unpacked program.
const maxProgram = 64 << 20

var errNone = errors.New("this program has no agent: append it as docs/e2a-agent.md says")

// Exec replaces this process by the agent. It returns only after an error.
func Exec(args []string) error {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer exe.Close()
	fd, err := unpack(exe)
	if err != nil {
		return err
	}
	return unix.Exec("/proc/self/fd/"+strconv.Itoa(fd), args, os.Environ())
}

// unpack returns a file in memory with the program.
func unpack(exe *os.File) (int, error) {
	end, err := elfEnd(exe)
	if err != nil {
		return 0, err
	}
	info, err := exe.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() <= end {
		return 0, errNone
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(io.NewSectionReader(exe, end, info.Size()-end), 64<<10))
	if err != nil {
		return 0, fmt.Errorf("unpack the agent: %w", err)
	}
	fd, err := unix.MemfdCreate("millrace-agent", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("unpack the agent: %w", err)
	}
	// The descriptor stays open until the new program replaces this one.
	f := os.NewFile(uintptr(fd), "millrace-agent")
	if _, err := io.Copy(f, io.LimitReader(z, maxProgram)); err != nil {
		f.Close()
		return 0, fmt.Errorf("unpack the agent: %w", err)
	}
	return fd, nil
}

// Offsets in the header of a 64-bit ELF file and in the headers of its sections and segments.
const (
	elfHeader       = 64
	atSegments      = 0x20
	atSections      = 0x28
	atSegmentSize   = 0x36
	atSegmentCount  = 0x38
	atSectionSize   = 0x3a
	atSectionCount  = 0x3c
	segmentOffset   = 0x08
	segmentFileSize = 0x20
	sectionType     = 0x04
	sectionOffset   = 0x18
	sectionFileSize = 0x20
	typeNoBits      = 8
)

// elfEnd returns the size of an ELF file without what is appended to it. Package debug/elf would be linked
// into the shim for that.
func elfEnd(r io.ReaderAt) (int64, error) {
	var h [elfHeader]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return 0, err
	}
	if string(h[:6]) != "\x7fELF\x02\x01" {
		return 0, errors.New("this program is not a 64-bit ELF file")
	}
	le := binary.LittleEndian
	var end uint64 = elfHeader
	each := func(at uint64, count, size uint16, one func(b []byte)) error {
		b := make([]byte, int(count)*int(size))
		if _, err := r.ReadAt(b, int64(at)); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[size:] {
			one(b[:size])
		}
		end = max(end, at+uint64(count)*uint64(size))
		return nil
	}
	err := each(le.Uint64(h[atSegments:]), le.Uint16(h[atSegmentCount:]), le.Uint16(h[atSegmentSize:]), func(b []byte) {
		end = max(end, le.Uint64(b[segmentOffset:])+le.Uint64(b[segmentFileSize:]))
	})
	if err != nil {
		return 0, err
	}
	err = each(le.Uint64(h[atSections:]), le.Uint16(h[atSectionCount:]), le.Uint16(h[atSectionSize:]), func(b []byte) {
		if le.Uint32(b[sectionType:]) != typeNoBits {
			end = max(end, le.Uint64(b[sectionOffset:])+le.Uint64(b[sectionFileSize:]))
		}
	})
	return int64(end), err
}
