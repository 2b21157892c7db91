package fifolink

import (
	"errors"
	"os"
	"time"
)

// Pair is a stream of two files, one for each direction. If the files can be polled,
// deadlines work and Close ends a Read.
type Pair struct{ In, Out *os.File }

// Read reads from In.
func (p Pair) Read(b []byte) (int, error) { return p.In.Read(b) }

// Write writes to Out.
func (p Pair) Write(b []byte) (int, error) { return p.Out.Write(b) }

// Close closes both files.
func (p Pair) Close() error { return errors.Join(p.In.Close(), p.Out.Close()) }

// SetReadDeadline sets the read deadline of In.
func (p Pair) SetReadDeadline(t time.Time) error { return p.In.SetReadDeadline(t) }

// SetWriteDeadline sets the write deadline of Out.
func (p Pair) SetWriteDeadline(t time.Time) error { return p.Out.SetWriteDeadline(t) }
