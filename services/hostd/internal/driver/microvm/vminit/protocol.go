//go:build linux

package vminit

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol before the shim starts: the guest sends ready, one byte, and the host sends the
// length of a Spec in four bytes, and the Spec. Files that another guest wrote follow as
// chunks, and the guest reports whether it has unpacked them: a length in four bytes, and an
// error, or nothing.
const (
	ready   = 'R'
	headLen = 4
	maxSpec = 1 << 20 // bytes
)

// AwaitReady returns when the guest at the other end waits for its Spec.
func AwaitReady(guest io.Reader) error {
	b := make([]byte, 1)
	if _, err := io.ReadFull(guest, b); err != nil {
		return fmt.Errorf("the guest did not report ready: %w", err)
	}
	if b[0] != ready {
		return fmt.Errorf("the guest sent %q instead of ready", b)
	}
	return nil
}

// Send sends a guest that is ready its Spec.
func Send(guest io.Writer, s *Spec) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(b) > maxSpec {
		return fmt.Errorf("spec of %d bytes exceeds the limit of %d", len(b), maxSpec)
	}
	_, err = guest.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// ErrRefused reports that the guest could not unpack the files of another guest.
var ErrRefused = errors.New("the guest refuses the files")

// SendFiles sends a guest the files that another one wrote, if its Spec announced them. It
// returns ErrRefused if the guest could not unpack them.
func SendFiles(guest io.ReadWriter, files io.Reader) error {
	b := make([]byte, headLen+maxChunk)
	for end := false; !end; {
		n, err := io.ReadFull(files, b[headLen:])
		if end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF); err != nil && !end {
			return err
		}
		binary.BigEndian.PutUint32(b, uint32(n))
		if _, err := guest.Write(b[:headLen+n]); err != nil {
			return err
		}
		if end && n > 0 {
			if _, err := guest.Write(make([]byte, headLen)); err != nil {
				return err
			}
		}
	}
	refusal, err := message(guest)
	if err == nil && len(refusal) > 0 {
		err = fmt.Errorf("%w: %q", ErrRefused, refusal)
	}
	return err
}

// maxChunk is the maximum size of a chunk.
const maxChunk = 256 << 10

// take is the guest's half of SendFiles.
func take(from io.ReadWriter, dir string) error {
	in := &chunks{r: from}
	err := unpack(bufio.NewReaderSize(in, maxChunk), dir)
	if _, rest := io.Copy(io.Discard, in); rest != nil { // the shim must not get the rest of the files as its input
		return errors.Join(err, rest)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, sent := from.Write(b); sent != nil {
		return errors.Join(err, sent)
	}
	return err
}

// message reads a length in four bytes and that many bytes.
func message(r io.Reader) ([]byte, error) {
	head := make([]byte, headLen)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > maxSpec {
		return nil, fmt.Errorf("message of %d bytes exceeds the limit of %d", n, maxSpec)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// receive is the guest's half of AwaitReady and Send. It does not read beyond the Spec: what
// follows is for the shim.
func receive(port io.ReadWriter) (*Spec, error) {
	if _, err := port.Write([]byte{ready}); err != nil {
		return nil, err
	}
	b, err := message(port)
	if err != nil {
		return nil, err
	}
	s := &Spec{}
	return s, json.Unmarshal(b, s)
}

// port is the serial port's descriptor. Reads happen on the caller's thread: a pending read
// on another one would take the shim's input.
type port int

// Read waits for the host: without a connection the kernel returns no data.
func (p port) Read(b []byte) (int, error) {
	const pause = time.Millisecond
	for {
		n, err := unix.Read(int(p), b)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return max(n, 0), os.NewSyscallError("read", err)
		}
		time.Sleep(pause)
	}
}

func (p port) Write(b []byte) (int, error) {
	n, err := unix.Write(int(p), b)
	return max(n, 0), os.NewSyscallError("write", err)
}
