//go:build linux

package vminit

import (
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
// answers with the length of a Spec in four bytes, and the Spec.
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

// receive is the guest's half of AwaitReady and Send. It reads no byte more: what
// follows is the shim's.
func receive(port io.ReadWriter) (*Spec, error) {
	if _, err := port.Write([]byte{ready}); err != nil {
		return nil, err
	}
	head := make([]byte, headLen)
	if _, err := io.ReadFull(port, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > maxSpec {
		return nil, errors.New("what has come is no spec")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(port, b); err != nil {
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
