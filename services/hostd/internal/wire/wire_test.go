package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
)

const token = "01arz3ndektsv4rrffq69g5fav"

// frames has one frame of each type, and what parsing its payload must return.
var frames = []struct {
	name  string
	frame []byte
	want  any
	parse func([]byte) (any, error)
}{
	{"attach", AppendAttach(nil, attach()), *attach(), parsed(ParseAttach)},
	{"attach without anything", AppendAttach(nil, &Attach{}), Attach{Seed: []byte{}}, parsed(ParseAttach)},
	{"start", AppendStart(nil, &Start{1, token, []byte("spec")}), Start{1, token, []byte("spec")}, parsed(ParseStart)},
	{"stdin", AppendStdin(nil, &Stdin{2, token, "c", true, []byte{0, 255}}), Stdin{2, token, "c", true, []byte{0, 255}}, parsed(ParseStdin)},
	{"signal", AppendSignal(nil, &Signal{3, token, "c", 15}), Signal{3, token, "c", 15}, parsed(ParseSignal)},
	{"resize", AppendResize(nil, &Resize{4, token, 80, 24}), Resize{4, token, 80, 24}, parsed(ParseResize)},
	{"ack", AppendMark(nil, TypeAck, Mark{token, 1 << 60}), Mark{token, 1 << 60}, parsed(ParseMark)},
	{"forget", AppendForget(nil, token), token, parsed(ParseForget)},
	{"time", AppendTime(nil, 1e18), int64(1e18), parsed(ParseTime)},
	{"network", AppendNetwork(nil, &Network{3128, []byte("pem"), "1.1.1.1"}), Network{3128, []byte("pem"), "1.1.1.1"}, parsed(ParseNetwork)},
	{"hello", AppendHello(nil, hello()), *hello(), parsed(ParseHello)},
	{"moved", AppendMoved(nil, &Moved{token, 17, []byte("spec")}), Moved{token, 17, []byte("spec")}, parsed(ParseMoved)},
	{"output", append(AppendOutputHead(nil, output()), "data"...), *output(), parsed(ParseOutput)},
	{"event", AppendEvent(nil, token, 9, func(b []byte) []byte { return append(b, "event"...) }), Event{token, 9, []byte("event")}, parsed(ParseEvent)},
	{"reply", AppendReply(nil, reply()), *reply(), parsed(ParseReply)},
	{"taken", AppendTaken(nil, 7), uint64(7), parsed(ParseTaken)},
}

func attach() *Attach {
	return &Attach{Epoch: 7, Sandbox: "s", Env: map[string]string{"A": "1", "B": ""},
		Limits: Limits{SpoolProcess: 1, SpoolTotal: 2, Quota: 3, Grace: time.Second, GraceMax: time.Minute,
			Disk: 4, Rate: 5, RateTotal: 6, QuotaTotal: 7}, Now: 1e18, Seed: []byte{1, 2, 3}}
}

func hello() *Hello {
	return &Hello{Processes: []Process{{token, 42, 2, 9, 100, nil}, {strings.Repeat("z", TokenLen), 0, 5, 4, 0, nil}}}
}

func output() *Output {
	return &Output{Token: token, Seq: 3, Time: 1e18, Stream: 2, Offset: 1 << 40, Data: []byte("data")}
}

func reply() *Reply {
	return &Reply{Rev: 6, After: 4, Kind: kind.NotFound, Error: "no", Offset: 5}
}

func parsed[T any](f func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		v, err := f(b)
		return v, err
	}
}

func TestFramesRoundTrip(t *testing.T) {
	var stream []byte
	for _, f := range frames {
		stream = append(stream, f.frame...)
	}
	r := NewReader(oneByteReader{bytes.NewReader(stream)})
	for _, f := range frames {
		_, payload, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		if got, err := f.parse(payload); err != nil || !reflect.DeepEqual(got, f.want) {
			t.Errorf("%s: got %+v, %v; want %+v", f.name, got, err, f.want)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// oneByteReader returns one byte per read: a stream may be split anywhere.
type oneByteReader struct{ r io.Reader }

func (o oneByteReader) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

// TestTruncatedPayloadsAreMalformed: never a panic or a wrong value.
func TestTruncatedPayloadsAreMalformed(t *testing.T) {
	for _, f := range frames {
		if f.name == "output" || f.name == "event" {
			continue // their last field has no length
		}
		payload := f.frame[headLen:]
		for n := range payload {
			if got, err := f.parse(payload[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s truncated at %d: %+v, %v", f.name, n, got, err)
			}
		}
		if _, err := f.parse(append(payload[:len(payload):len(payload)], 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s with an extra byte: %v", f.name, err)
		}
	}
}

// TestOtherVersionsAreRefused: each side refuses another version, whatever follows it.
func TestOtherVersionsAreRefused(t *testing.T) {
	const at = headLen + 4 // of the version
	for _, f := range frames {
		if f.name != "attach" && f.name != "hello" {
			continue
		}
		for _, version := range []uint32{0, Version + 1} {
			frame := slices.Clone(f.frame)
			binary.LittleEndian.PutUint32(frame[at:], version)
			for _, b := range [][]byte{frame[headLen:], frame[headLen : at+4]} {
				if got, err := f.parse(b); !errors.Is(err, ErrVersion) {
					t.Errorf("%s of version %d: %+v, %v", f.name, version, got, err)
				}
			}
		}
	}
}

func TestCutRemovesOneFrame(t *testing.T) {
	var b []byte
	for _, f := range frames {
		b = append(b, f.frame...)
	}
	for _, f := range frames {
		_, payload, rest, err := Cut(b)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		if got, err := f.parse(payload); err != nil || !reflect.DeepEqual(got, f.want) {
			t.Errorf("%s: %+v, %v", f.name, got, err)
		}
		b = rest
	}
	for _, bad := range []string{"", "\x01\x00\x00", "\x05\x00\x00\x00\x42\x00\x00\x00abcd", "\xff\xff\xff\xff\x42\x00\x00\x00"} {
		if _, _, _, err := Cut([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestBadHeads(t *testing.T) {
	tests := []struct {
		name, bytes string
		want        error
	}{
		{"longer than any frame", "\x01\x00\x20\x00\x42\x00\x00\x00", ErrMalformed},
		{"maximum length", "\xff\xff\xff\xff\x42\x00\x00\x00", ErrMalformed},
		{"nonzero padding", "\x00\x00\x00\x00\x42\x00\x01\x00", ErrMalformed},
		{"half a head", "\x00\x00\x00", io.ErrUnexpectedEOF},
		{"half a payload", "\x05\x00\x00\x00\x42\x00\x00\x00ab", io.ErrUnexpectedEOF},
		{"nothing", "", io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := NewReader(strings.NewReader(tt.bytes)).Next(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for i, fr := range frames {
		f.Add(i, fr.frame[headLen:])
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		fr := frames[uint(i)%uint(len(frames))]
		if _, err := fr.parse(b); err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", fr.name, err)
		}
	})
}

// TestHelloOfManyProcesses: a shim may have far more unacknowledged processes than running
// ones, and sends them in one frame.
func TestHelloOfManyProcesses(t *testing.T) {
	many := &Hello{Processes: make([]Process, 100_000)}
	for i := range many.Processes {
		many.Processes[i] = Process{Token: fmt.Sprintf("%0*d", TokenLen, i), First: 1, Last: 2}
	}
	typ, payload, err := NewReader(bytes.NewReader(AppendHello(nil, many))).Next()
	if err != nil || typ != TypeHello {
		t.Fatalf("%v, %v", typ, err)
	}
	if h, err := ParseHello(payload); err != nil || len(h.Processes) != len(many.Processes) {
		t.Errorf("%v", err)
	}
	head := AppendFrame(nil, TypeHello+1, func(b []byte) []byte { return append(b, make([]byte, MaxFrame+1)...) })
	if _, _, err := NewReader(bytes.NewReader(head)).Next(); !errors.Is(err, ErrMalformed) {
		t.Errorf("another frame of that size: %v", err)
	}
}
