package process

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// The stored format is that of schema/event/v1. This file encodes and decodes it by hand,
// because output frames are the hot path. A fuzz test compares it with the generated type.
// The field numbers are those in event.proto.

// BatchVersion is the version of a message. ParseBatch refuses another one.
const BatchVersion = 1

// Batch is one message of a process's record.
type Batch struct {
	Sandbox  string
	Process  string // the token of the process's id
	Host     string
	Epoch    uint64
	FirstSeq Seq
	Exited   *Exit   // of the Exited in an earlier message; nil if there was none
	Frames   int     // number of seqs in the message; set by ParseBatch
	Size     int     // bytes that Events share; set by ParseBatch
	Events   []Event // one frame each, from FirstSeq on
}

// From returns the first seq that b covers: that of its first event, or if that is a stored
// Gap, the first seq of the hole.
func (b *Batch) From() Seq {
	if len(b.Events) > 0 {
		if g, ok := b.Events[0].Body.(Gap); ok && g.From > 0 && g.From < b.FirstSeq {
			return g.From
		}
	}
	return b.FirstSeq
}

// AppendBatch appends the encoding of b to dst. The Seq of an event is not stored; it
// follows from FirstSeq.
func AppendBatch(dst []byte, b *Batch) []byte {
	dst = AppendBatchHead(dst, b)
	for i := range b.Events {
		dst = AppendBatchFrame(dst, &b.Events[i])
	}
	return dst
}

// AppendBatchHead appends the encoding of b without its events, which always come last: of
// two messages that begin at the same event, the shorter is a prefix of the longer.
func AppendBatchHead(dst []byte, b *Batch) []byte {
	dst = field.AppendUint(dst, 1, BatchVersion)
	dst = field.AppendString(dst, 2, b.Sandbox)
	dst = field.AppendString(dst, 3, b.Process)
	dst = field.AppendString(dst, 4, b.Host)
	dst = field.AppendUint(dst, 5, b.Epoch)
	dst = field.AppendUint(dst, 6, b.FirstSeq)
	if b.Exited == nil {
		return dst
	}
	return field.PutMessage(dst, 9, func(dst []byte) []byte { return AppendExit(dst, b.Exited) })
}

// AppendBatchFrame appends one event to a batch begun with AppendBatchHead.
func AppendBatchFrame(dst []byte, e *Event) []byte {
	if w, ok := e.Body.(Wrote); ok { // the hot path: no bytes are moved
		dst = protowire.AppendTag(dst, 7, protowire.BytesType)
		n := 1 + protowire.SizeVarint(uint64(e.Time.UnixNano())) + 1 + protowire.SizeBytes(wroteSize(&w))
		return AppendEvent(protowire.AppendVarint(dst, uint64(n)), e)
	}
	return field.PutMessage(dst, 7, func(dst []byte) []byte { return AppendEvent(dst, e) })
}

// ParseBatch decodes an uncompressed message of a record. Its events share b's memory. It
// skips frames of an unknown kind, which keep their seq, and returns Unimplemented for
// another BatchVersion.
func ParseBatch(b []byte) (Batch, error) {
	out := Batch{Size: len(b)}
	var version uint64
	frames := make([][]byte, 0, 8)
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			version = u
		case 2:
			out.Sandbox = string(v)
		case 3:
			out.Process = string(v)
		case 4:
			out.Host = string(v)
		case 5:
			out.Epoch = u
		case 6:
			out.FirstSeq = u
		case 7:
			frames = append(frames, v)
		case 9:
			x, err := ParseExit(v)
			out.Exited = &x
			return err
		}
		return nil
	})
	if err != nil {
		return Batch{}, err
	}
	if version != BatchVersion {
		return Batch{}, kind.Newf(kind.Unimplemented, "parse batch", "", "a message of version %d, want %d", version, BatchVersion)
	}
	out.Frames = len(frames)
	out.Events = make([]Event, 0, len(frames))
	for i, f := range frames {
		e, err := ParseEvent(f)
		if err != nil {
			return Batch{}, err
		}
		if e.Body != nil {
			e.Seq = out.FirstSeq + Seq(i)
			out.Events = append(out.Events, e)
		}
	}
	return out, nil
}

// AppendEvent appends e as one frame, without its Seq.
func AppendEvent(dst []byte, e *Event) []byte {
	dst = field.AppendUint(dst, 1, uint64(e.Time.UnixNano()))
	if w, ok := e.Body.(Wrote); ok { // the hot path: the length is known in advance
		n := wroteSize(&w)
		dst = protowire.AppendTag(dst, 4, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(n))
		return appendWrote(dst, &w)
	}
	num, body := bodyOf(e.Body)
	if num == 0 {
		return dst
	}
	return field.PutMessage(dst, num, body)
}

// bodyOf returns the field number of a body and a function that appends its content.
func bodyOf(b Body) (protowire.Number, func([]byte) []byte) {
	switch b := b.(type) {
	case Accepted:
		return 2, func(dst []byte) []byte {
			dst = field.PutMessage(dst, 1, func(dst []byte) []byte { return AppendSpec(dst, &b.Spec) })
			dst = field.AppendString(dst, 2, b.Command)
			dst = field.AppendBytes(dst, 3, b.SpecHash)
			dst = field.AppendString(dst, 4, b.Tenant)
			dst = field.AppendString(dst, 5, string(b.From))
			return field.AppendUint(dst, 6, b.After)
		}
	case Started:
		return 3, func(dst []byte) []byte { return field.AppendUint(dst, 1, uint64(b.PID)) }
	case Wrote:
		return 4, func(dst []byte) []byte { return appendWrote(dst, &b) }
	case Omitted:
		return 14, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, uint64(b.Stream))
			dst = field.AppendUint(dst, 2, b.Offset)
			return field.AppendUint(dst, 3, b.Bytes)
		}
	case StdinAcked:
		return 5, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, b.Offset)
			dst = field.AppendString(dst, 2, b.Command)
			return field.AppendBool(dst, 3, b.EOF)
		}
	case Resized:
		return 6, func(dst []byte) []byte { return appendSize(dst, b.Size) }
	case Signaled:
		return 7, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, uint64(int64(b.Signal)))
			return field.AppendString(dst, 2, b.Command)
		}
	case Truncated:
		return 8, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, uint64(b.Stream))
			return field.AppendUint(dst, 2, b.Dropped)
		}
	case Gap:
		return 9, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, b.From)
			dst = field.AppendUint(dst, 2, b.To)
			return field.AppendString(dst, 3, b.Reason)
		}
	case Exited:
		return 10, exitBody(&b.Exit)
	case Finished:
		return 11, exitBody(&b.Exit)
	case Lost:
		return 12, func(dst []byte) []byte { return field.AppendString(dst, 1, b.Reason) }
	case Failed:
		return 13, func(dst []byte) []byte {
			dst = field.AppendUint(dst, 1, uint64(b.Kind))
			return field.AppendString(dst, 2, b.Message)
		}
	}
	return 0, nil
}

func exitBody(x *Exit) func([]byte) []byte {
	return func(dst []byte) []byte {
		return field.PutMessage(dst, 1, func(dst []byte) []byte { return AppendExit(dst, x) })
	}
}

// AppendExit appends the encoding of x.
func AppendExit(dst []byte, x *Exit) []byte {
	if x.Code != nil {
		dst = protowire.AppendTag(dst, 1, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(int64(*x.Code)))
	}
	dst = field.AppendUint(dst, 2, uint64(int64(x.Signal)))
	dst = field.AppendString(dst, 3, string(x.Cause))
	return field.AppendString(dst, 4, x.Message)
}

func wroteSize(w *Wrote) int {
	n := 0
	if w.Stream != 0 {
		n += 1 + protowire.SizeVarint(uint64(w.Stream))
	}
	if w.Offset != 0 {
		n += 1 + protowire.SizeVarint(w.Offset)
	}
	if len(w.Data) != 0 {
		n += 1 + protowire.SizeBytes(len(w.Data))
	}
	return n
}

func appendWrote(dst []byte, w *Wrote) []byte {
	dst = field.AppendUint(dst, 1, uint64(w.Stream))
	dst = field.AppendUint(dst, 2, w.Offset)
	return field.AppendBytes(dst, 3, w.Data)
}

func appendSize(dst []byte, s Size) []byte {
	dst = field.AppendUint(dst, 1, uint64(s.Cols))
	return field.AppendUint(dst, 2, uint64(s.Rows))
}

// AppendSpec appends the encoding of s. Equal specs have equal encodings.
func AppendSpec(dst []byte, s *Spec) []byte {
	dst = field.AppendString(dst, 1, s.Cmd)
	for _, a := range s.Args {
		dst = field.PutString(dst, 2, a)
	}
	keys := make([]string, 0, len(s.Env))
	for k := range s.Env {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		dst = field.PutMessage(dst, 3, func(dst []byte) []byte {
			dst = field.PutString(dst, 1, k)
			return field.PutString(dst, 2, s.Env[k])
		})
	}
	dst = field.AppendString(dst, 4, s.Cwd)
	dst = field.AppendString(dst, 5, s.User)
	if s.PTY != nil {
		dst = field.PutMessage(dst, 6, func(dst []byte) []byte { return appendSize(dst, *s.PTY) })
	}
	dst = field.AppendBool(dst, 7, s.Stdin)
	if s.Tag != nil {
		dst = field.PutString(dst, 8, *s.Tag)
	}
	dst = field.AppendUint(dst, 9, uint64(s.Timeout))
	dst = field.AppendBool(dst, 10, s.Helper)
	dst = field.AppendBool(dst, 11, s.Exact)
	if s.Arg0 != nil {
		dst = field.PutString(dst, 12, *s.Arg0)
	}
	if s.Confine != nil {
		dst = field.PutMessage(dst, 13, s.Confine.Append)
	}
	dst = field.AppendUint(dst, 15, uint64(s.Record))
	for _, p := range s.Redact {
		dst = field.PutString(dst, 16, p)
	}
	if s.Trace != nil {
		dst = field.PutMessage(dst, 18, func(dst []byte) []byte { return AppendTrace(dst, s.Trace) })
	}
	return field.AppendBool(dst, 19, s.UntilEOF)
}

// ParseSpec decodes the output of AppendSpec.
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			s.Cmd = string(v)
		case 2:
			s.Args = append(s.Args, string(v))
		case 3:
			return parseEnv(&s, v)
		case 4:
			s.Cwd = string(v)
		case 5:
			s.User = string(v)
		case 6:
			size, err := parseSize(v)
			s.PTY = &size
			return err
		case 7:
			s.Stdin = u != 0
		case 8:
			tag := string(v)
			s.Tag = &tag
		case 9:
			s.Timeout = time.Duration(u)
		case 10:
			s.Helper = u != 0
		case 11:
			s.Exact = u != 0
		case 12:
			arg0 := string(v)
			s.Arg0 = &arg0
		case 13:
			s.Confine, err = ParseConfinement(v)
		case 15:
			s.Record, err = sandbox.PolicyOf(u)
		case 16:
			s.Redact = append(s.Redact, string(v))
		case 18:
			s.Trace, err = ParseTrace(v)
		case 19:
			s.UntilEOF = u != 0
		}
		return err
	})
	return s, err
}

func parseEnv(s *Spec, b []byte) error {
	var k, v string
	err := field.Each(b, func(num protowire.Number, _ uint64, val []byte) error {
		switch num {
		case 1:
			k = string(val)
		case 2:
			v = string(val)
		}
		return nil
	})
	if s.Env == nil {
		s.Env = make(map[string]string)
	}
	s.Env[k] = v
	return err
}

func parseSize(b []byte) (Size, error) {
	var s Size
	err := field.Each(b, func(num protowire.Number, u uint64, _ []byte) error {
		switch num {
		case 1:
			s.Cols = uint32(u)
		case 2:
			s.Rows = uint32(u)
		}
		return nil
	})
	return s, err
}

// ParseEvent decodes one frame. The event shares b's memory and has no Seq. A frame of an
// unknown kind yields an Event without a Body.
func ParseEvent(b []byte) (Event, error) {
	var e Event
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		if num == 1 {
			e.Time = time.Unix(0, int64(u))
			return nil
		}
		body, err := parseBody(num, v)
		if body != nil {
			e.Body = body
		}
		return err
	})
	return e, err
}

func parseBody(num protowire.Number, b []byte) (Body, error) {
	switch num {
	case 2:
		return parseAccepted(b)
	case 4:
		return parseWrote(b)
	case 10:
		x, err := parseExitIn(b)
		return Exited{Exit: x}, err
	case 11:
		x, err := parseExitIn(b)
		return Finished{Exit: x}, err
	}
	u, s, err := scalars(b)
	switch num {
	case 3:
		return Started{PID: uint32(u[1])}, err
	case 5:
		return StdinAcked{Offset: u[1], Command: s[2], EOF: u[3] != 0}, err
	case 6:
		return Resized{Size: Size{Cols: uint32(u[1]), Rows: uint32(u[2])}}, err
	case 7:
		return Signaled{Signal: int32(u[1]), Command: s[2]}, err
	case 8:
		return Truncated{Stream: Stream(u[1]), Dropped: u[2]}, err
	case 9:
		return Gap{From: u[1], To: u[2], Reason: s[3]}, err
	case 12:
		return Lost{Reason: s[1]}, err
	case 13:
		return Failed{Kind: uint32(u[1]), Message: s[2]}, err
	case 14:
		return Omitted{Stream: Stream(u[1]), Offset: u[2], Bytes: u[3]}, err
	}
	return nil, nil
}

func parseAccepted(b []byte) (Body, error) {
	var a Accepted
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			a.Spec, err = ParseSpec(v)
		case 2:
			a.Command = string(v)
		case 3:
			a.SpecHash = v
		case 4:
			a.Tenant = string(v)
		case 5:
			a.From = ID(v)
		case 6:
			a.After = u
		}
		return err
	})
	return a, err
}

func parseWrote(b []byte) (Body, error) {
	var w Wrote
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			w.Stream = Stream(u)
		case 2:
			w.Offset = u
		case 3:
			w.Data = v
		}
		return nil
	})
	return w, err
}

// parseExitIn decodes a message that contains only an exit.
func parseExitIn(b []byte) (Exit, error) {
	var x Exit
	err := field.Each(b, func(num protowire.Number, _ uint64, v []byte) (err error) {
		if num == 1 {
			x, err = ParseExit(v)
		}
		return err
	})
	return x, err
}

// ParseExit decodes the output of AppendExit.
func ParseExit(b []byte) (Exit, error) {
	var x Exit
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			code := int32(u)
			x.Code = &code
		case 2:
			x.Signal = int32(u)
		case 3:
			x.Cause = Cause(v)
		case 4:
			x.Message = string(v)
		}
		return nil
	})
	return x, err
}

// scalars decodes a message whose fields 1 to 3 are each a number or a string.
func scalars(b []byte) (u [4]uint64, s [4]string, err error) {
	err = field.Each(b, func(num protowire.Number, val uint64, v []byte) error {
		if num < 4 {
			u[num], s[num] = val, string(v)
		}
		return nil
	})
	return u, s, err
}
