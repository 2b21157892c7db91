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

// What is said before there is a shim: the guest says ready, as one byte, and the host
// answers with the length of a Spec in four bytes, and the Spec. What another guest wrote
// follows as chunks, and the guest says whether it has it: a length in four bytes, and an
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
		return fmt.Errorf("the guest does not say that it is ready: %w", err)
	}
	if b[0] != ready {
		return fmt.Errorf("the guest says %q instead of that it is ready", b)
	}
	return nil
}

// Send tells a guest that is ready what to become.
func Send(guest io.Writer, s *Spec) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(b) > maxSpec {
		return fmt.Errorf("a spec of %d bytes, %d at most", len(b), maxSpec)
	}
	_, err = guest.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// ErrRefused is what a guest says that could not take what another one wrote.
var ErrRefused = errors.New("the guest refuses the files")

// SendFiles sends a guest whose Spec says so what another one wrote. ErrRefused: it could
// not take that.
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
	said, err := message(guest)
	if err == nil && len(said) > 0 {
		err = fmt.Errorf("%w: %q", ErrRefused, said)
	}
	return err
}

// maxChunk is how much of it goes at once.
const maxChunk = 256 << 10

// take is the guest's half of SendFiles.
func take(from io.ReadWriter, dir string) error {
	in := &chunks{r: from}
	err := unpack(bufio.NewReaderSize(in, maxChunk), dir)
	if _, rest := io.Copy(io.Discard, in); rest != nil { // what the host still sends would be taken for what is the shim's
		return errors.Join(err, rest)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	if _, told := from.Write(b); told != nil {
		return errors.Join(err, told)
	}
	return err
}

// message reads a length in four bytes and as many as it says.
func message(r io.Reader) ([]byte, error) {
	head := make([]byte, headLen)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > maxSpec {
		return nil, fmt.Errorf("a message of %d bytes, %d at most", n, maxSpec)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// receive is the guest's half of AwaitReady and Send. It reads no byte more: what
// follows is the shim's.
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

// port is the serial port's descriptor, read by the thread that asks: a read in flight
// elsewhere would take what is the shim's.
type port int

// Read waits for the host: the kernel gives nothing while nobody is there.
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
