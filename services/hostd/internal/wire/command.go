package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// The fields that messages about a process share.
const (
	fieldToken   = 1
	fieldSeq     = 2 // of Mark, Output and Event
	fieldRev     = 2 // of commands
	fieldCommand = 3 // id of the command
)

// appendCommand appends the fields that commands share.
func appendCommand(dst []byte, rev uint64, token, command string) []byte {
	dst = field.AppendUint(putToken(dst, token), fieldRev, rev)
	return field.AppendString(dst, fieldCommand, command)
}

// Start starts a process. Its record already has Accepted as seq 1.
type Start struct {
	Rev   uint64
	Token string
	Spec  []byte // process.AppendSpec
}

// AppendStart appends s as a frame.
func AppendStart(dst []byte, s *Start) []byte {
	return AppendFrame(dst, TypeStart, func(dst []byte) []byte {
		return field.AppendBytes(appendCommand(dst, s.Rev, s.Token, ""), 4, s.Spec)
	})
}

// ParseStart parses what AppendStart wrote; Spec shares b's memory.
func ParseStart(b []byte) (Start, error) {
	var s Start
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			s.Token, err = tokenField(v)
		case fieldRev:
			s.Rev = u
		case 4:
			s.Spec, err = payload(v, MaxFrame)
		}
		return err
	})
	return s, parsed(s.Token, err)
}

// Stdin is input for a process, followed by EOF if set.
type Stdin struct {
	Rev     uint64
	Token   string
	Command string
	EOF     bool
	Data    []byte
}

// AppendStdin appends s as a frame.
func AppendStdin(dst []byte, s *Stdin) []byte {
	return AppendFrame(dst, TypeStdin, func(dst []byte) []byte {
		dst = appendCommand(dst, s.Rev, s.Token, s.Command)
		return field.AppendBytes(field.AppendBool(dst, 4, s.EOF), 5, s.Data)
	})
}

// ParseStdin parses what AppendStdin wrote; Data shares b's memory.
func ParseStdin(b []byte) (Stdin, error) {
	var s Stdin
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			s.Token, err = tokenField(v)
		case fieldRev:
			s.Rev = u
		case fieldCommand:
			s.Command, err = text(v)
		case 4:
			s.EOF = u != 0
		case 5:
			s.Data, err = payload(v, MaxFrame)
		}
		return err
	})
	return s, parsed(s.Token, err)
}

// Signal sends a signal to a process group.
type Signal struct {
	Rev     uint64
	Token   string
	Command string
	Signal  int32
}

// AppendSignal appends s as a frame.
func AppendSignal(dst []byte, s *Signal) []byte {
	return AppendFrame(dst, TypeSignal, func(dst []byte) []byte {
		return field.AppendUint(appendCommand(dst, s.Rev, s.Token, s.Command), 4, uint64(uint32(s.Signal)))
	})
}

// ParseSignal parses what AppendSignal wrote.
func ParseSignal(b []byte) (Signal, error) {
	var s Signal
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			s.Token, err = tokenField(v)
		case fieldRev:
			s.Rev = u
		case fieldCommand:
			s.Command, err = text(v)
		case 4:
			var n uint32
			n, err = number[uint32](u)
			s.Signal = int32(n)
		}
		return err
	})
	return s, parsed(s.Token, err)
}

// Resize sets the size of a process's terminal.
type Resize struct {
	Rev        uint64
	Token      string
	Cols, Rows uint32
}

// AppendResize appends r as a frame.
func AppendResize(dst []byte, r *Resize) []byte {
	return AppendFrame(dst, TypeResize, func(dst []byte) []byte {
		dst = appendCommand(dst, r.Rev, r.Token, "")
		return field.AppendUint(field.AppendUint(dst, 4, uint64(r.Cols)), 5, uint64(r.Rows))
	})
}

// ParseResize parses what AppendResize wrote.
func ParseResize(b []byte) (Resize, error) {
	var r Resize
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case fieldToken:
			r.Token, err = tokenField(v)
		case fieldRev:
			r.Rev = u
		case 4:
			r.Cols, err = number[uint32](u)
		case 5:
			r.Rows, err = number[uint32](u)
		}
		return err
	})
	return r, parsed(r.Token, err)
}
