package process

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
)

// TraceID identifies a trace. The zero value is not valid.
type TraceID [16]byte

// SpanID identifies a span in a trace. The zero value is not valid.
type SpanID [8]byte

// String returns the id as in a traceparent.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String returns the id as in a traceparent.
func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// Trace is the context of the trace to which the start of a process belongs, as in W3C Trace
// Context. It does not change.
type Trace struct {
	ID     TraceID
	Parent SpanID // span of the request
	Flags  uint8
	State  string // value of tracestate; empty: none
	// Exported says that the process's own span is exported. It is then the parent of the spans of the
	// process; otherwise Parent is.
	Exported bool
}

// MaxTraceState is the maximum length of a trace's state in bytes.
const MaxTraceState = 512

// Names of the variables with which a process gets the context of its trace.
const (
	EnvTraceParent = "TRACEPARENT"
	EnvTraceState  = "TRACESTATE"
)

// SpanOf returns the id of a process's span. It is derived from the process's id, so that a span that
// is exported twice is the same span.
func SpanOf(id ID) SpanID {
	sum := sha256.Sum256([]byte("millrace span\x00" + id))
	span := SpanID(sum[:8])
	span[0] |= 1 // never zero
	return span
}

// RootOf returns the id of the trace that begins with a process's span, if its start belongs to none.
func RootOf(id ID) TraceID {
	sum := sha256.Sum256([]byte("millrace trace\x00" + id))
	trace := TraceID(sum[:16])
	trace[0] |= 1 // never zero
	return trace
}

// SpanFor returns the span to which belongs what the process with the given id does.
func (t *Trace) SpanFor(id ID) SpanID {
	if t.Exported {
		return SpanOf(id)
	}
	return t.Parent
}

// ParentFor returns the traceparent for the process with the given id.
func (t *Trace) ParentFor(id ID) string {
	span := t.SpanFor(id)
	return "00-" + t.ID.String() + "-" + span.String() + "-" + hex.EncodeToString([]byte{t.Flags})
}

// EnvOf returns the environment of the process with the given id: Env and the context of its trace,
// unless Env has one or is the whole environment.
func (s *Spec) EnvOf(id ID) map[string]string {
	if _, ok := s.Env[EnvTraceParent]; ok || s.Trace == nil || s.Exact {
		return s.Env
	}
	env := maps.Clone(s.Env)
	if env == nil {
		env = make(map[string]string)
	}
	env[EnvTraceParent] = s.Trace.ParentFor(id)
	delete(env, EnvTraceState) // it belongs to another trace
	if s.Trace.State != "" {
		env[EnvTraceState] = s.Trace.State
	}
	return env
}

// AppendTrace appends the encoding of t.
func AppendTrace(dst []byte, t *Trace) []byte {
	dst = field.AppendBytes(dst, 1, t.ID[:])
	dst = field.AppendBytes(dst, 2, t.Parent[:])
	dst = field.AppendUint(dst, 3, uint64(t.Flags))
	dst = field.AppendString(dst, 4, t.State)
	return field.AppendBool(dst, 5, t.Exported)
}

// ParseTrace decodes the output of AppendTrace.
func ParseTrace(b []byte) (*Trace, error) {
	var id, parent []byte
	var flags uint64
	var state string
	var exported bool
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			id = v
		case 2:
			parent = v
		case 3:
			flags = u
		case 4:
			state = string(v)
		case 5:
			exported = u != 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return NewTrace(id, parent, flags, state, exported)
}

// NewTrace returns a trace with fields from a message. It returns Invalid if they cannot be those of a
// trace.
func NewTrace(id, parent []byte, flags uint64, state string, exported bool) (*Trace, error) {
	t := &Trace{Flags: uint8(flags), State: state, Exported: exported}
	if copy(t.ID[:], id) != len(id) || copy(t.Parent[:], parent) != len(parent) || len(id) != len(t.ID) || len(parent) != len(t.Parent) ||
		t.ID == (TraceID{}) || t.Parent == (SpanID{}) || flags > 0xff || len(state) > MaxTraceState || !printable(state) {
		return nil, kind.New(kind.Invalid, "parse trace", "", "the context of a trace is not valid")
	}
	return t, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
