package serial

import (
	"errors"
	"os"
	"time"
)

// Pair is a stream of two files, each for one direction. Deadlines work, and Close
// ends a Read, where the files can be polled.
type Pair struct{ In, Out *os.File }

// Read is os.File.Read of In.
func (p Pair) Read(b []byte) (int, error) { return p.In.Read(b) }

// Write is os.File.Write of Out.
func (p Pair) Write(b []byte) (int, error) { return p.Out.Write(b) }

// Close closes both files.
func (p Pair) Close() error { return errors.Join(p.In.Close(), p.Out.Close()) }

// SetReadDeadline is os.File.SetReadDeadline of In.
func (p Pair) SetReadDeadline(t time.Time) error { return p.In.SetReadDeadline(t) }

// SetWriteDeadline is os.File.SetWriteDeadline of Out.
func (p Pair) SetWriteDeadline(t time.Time) error { return p.Out.SetWriteDeadline(t) }
