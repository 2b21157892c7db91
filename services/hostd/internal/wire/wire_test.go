package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
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
	{"attach without anything", AppendAttach(nil, &Attach{}), Attach{Version: Version, Seed: []byte{}}, parsed(ParseAttach)},
	{"attach of version 2", AppendAttach(nil, &Attach{Version: 2, Limits: Limits{Disk: 9}, Now: 1}), Attach{Version: 2, Limits: Limits{Disk: 9}}, parsed(ParseAttach)},
	{"attach of version 1", AppendAttach(nil, &Attach{Version: 1, Epoch: 3, Limits: Limits{Disk: 9}}), Attach{Version: 1, Epoch: 3}, parsed(ParseAttach)},
	{"start", AppendStart(nil, &Start{1, token, []byte("spec")}), Start{1, token, []byte("spec")}, parsed(ParseStart)},
	{"stdin", AppendStdin(nil, &Stdin{2, token, "c", true, []byte{0, 255}}), Stdin{2, token, "c", true, []byte{0, 255}}, parsed(ParseStdin)},
	{"signal", AppendSignal(nil, &Signal{3, token, "c", 15}), Signal{3, token, "c", 15}, parsed(ParseSignal)},
	{"resize", AppendResize(nil, &Resize{4, token, 80, 24}), Resize{4, token, 80, 24}, parsed(ParseResize)},
	{"ack", AppendMark(nil, TypeAck, Mark{token, 1 << 60}), Mark{token, 1 << 60}, parsed(ParseMark)},
	{"forget", AppendForget(nil, token), token, parsed(ParseForget)},
	{"time", AppendTime(nil, 1e18), int64(1e18), parsed(ParseTime)},
	{"network", AppendNetwork(nil, 5, &Network{3128, []byte("pem"), "1.1.1.1"}), Network{3128, []byte("pem"), "1.1.1.1"}, parsed(networkOf(5))},
	{"network of version 4", AppendNetwork(nil, 4, &Network{3128, []byte("pem"), "1.1.1.1"}), Network{3128, []byte("pem"), ""}, parsed(networkOf(4))},
	{"network of version 3", AppendNetwork(nil, 3, &Network{3128, []byte("pem"), "1.1.1.1"}), Network{Proxy: 3128}, parsed(networkOf(3))},
	{"hello", AppendHello(nil, hello()), *hello(), parsed(ParseHello)},
	{"moved", AppendMoved(nil, &Moved{token, 17, []byte("spec")}), Moved{token, 17, []byte("spec")}, parsed(ParseMoved)},
	{"output", append(AppendOutputHead(nil, output()), "data"...), *output(), parsed(ParseOutput)},
	{"event", AppendEvent(nil, token, 9, func(b []byte) []byte { return append(b, "event"...) }), Event{token, 9, []byte("event")}, parsed(ParseEvent)},
	{"reply", AppendReply(nil, reply()), *reply(), parsed(ParseReply)},
	{"taken", AppendTaken(nil, 7), uint64(7), parsed(ParseTaken)},
}

func attach() *Attach {
	return &Attach{Version: Version, Epoch: 7, Sandbox: "s", Env: map[string]string{"A": "1", "B": ""},
		Limits: Limits{SpoolProcess: 1, SpoolTotal: 2, Quota: 3, Grace: time.Second, GraceMax: time.Minute,
			Disk: 4, Rate: 5, RateTotal: 6, QuotaTotal: 7}, Now: 1e18, Seed: []byte{1, 2, 3}}
}

func hello() *Hello {
	return &Hello{Version: Version, Processes: []Process{{token, 42, 2, 9, 100, nil}, {strings.Repeat("z", TokenLen), 0, 5, 4, 0, nil}}}
}

func output() *Output {
	return &Output{Token: token, Seq: 3, Time: 1e18, Stream: 2, Offset: 1 << 40, Data: []byte("data")}
}

func reply() *Reply {
	return &Reply{Rev: 6, After: 4, Kind: kind.NotFound, Error: "no", Offset: 5}
}

func networkOf(version uint32) func([]byte) (Network, error) {
	return func(b []byte) (Network, error) { return ParseNetwork(version, b) }
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

// TestVersion1IsSupported compares the bytes sent to a shim of version 1, and its answer.
func TestVersion1IsSupported(t *testing.T) {
	const attach = "\x54\x00\x00\x00\x01\x00\x00\x00" + "hsrm\x01\x00\x00\x00" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00s" +
		"\x01\x00\x00\x00\x00\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x03\x00\x00\x00\x00\x00\x00\x00" +
		"\x00\xca\x9a\x3b\x00\x00\x00\x00" + "\x00\x58\x47\xf8\x0d\x00\x00\x00" +
		"\x02\x00\x00\x00" + "\x01\x00\x00\x00A\x01\x00\x00\x001" + "\x01\x00\x00\x00B\x00\x00\x00\x00"
	a := attachOf(1)
	if got := string(AppendAttach(nil, a)); got != attach {
		t.Errorf("attach:\n%q, want\n%q", got, attach)
	}
	got, err := ParseAttach([]byte(attach)[headLen:])
	a.Limits.Disk, a.Limits.Rate, a.Limits.RateTotal, a.Limits.QuotaTotal = 0, 0, 0, 0
	a.Now, a.Seed = 0, nil
	if err != nil || !reflect.DeepEqual(got, *a) {
		t.Errorf("attach: %+v, %v; want %+v", got, err, *a)
	}
	const hello = "hsrm\x01\x00\x00\x00\x00\x00\x00\x00"
	if h, err := ParseHello([]byte(hello)); err != nil || h.Version != 1 {
		t.Errorf("hello: %+v, %v", h, err)
	}
}

func attachOf(version uint32) *Attach {
	a := attach()
	a.Version = version
	return a
}

// TestNewerVersionIsAnsweredWithOurs: the known part of an Attach of a newer version is
// read, and the answer proposes this version.
func TestNewerVersionIsAnsweredWithOurs(t *testing.T) {
	b := AppendAttach(nil, attachOf(Version+1))[headLen:]
	got, err := ParseAttach(append(b, "fields of the newer version"...))
	if err != nil || !reflect.DeepEqual(got, *attach()) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseHello(AppendHello(nil, &Hello{Version: Version + 1})[headLen:]); !errors.Is(err, ErrMalformed) {
		t.Errorf("a shim that proposes a newer version than hostd: %v", err)
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
		if _, err := fr.parse(b); err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", fr.name, err)
		}
	})
}

// TestHelloOfManyProcesses: a shim may have far more unacknowledged processes than running
// ones, and sends them in one frame.
func TestHelloOfManyProcesses(t *testing.T) {
	many := &Hello{Version: Version, Processes: make([]Process, 100_000)}
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
