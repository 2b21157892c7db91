package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
)

const token = "01arz3ndektsv4rrffq69g5fav"

// frame is one frame, what parsing its payload must return, and how to append that again.
type frame struct {
	name   string
	bytes  []byte
	want   any
	parse  func([]byte) (any, error)
	append func(any) []byte
}

func (f *frame) payload() []byte { return f.bytes[headLen:] }

// newFrame returns the frame of v.
func newFrame[T any](name string, v T, add func([]byte, T) []byte, parse func([]byte) (T, error)) frame {
	return frame{name, add(nil, v), v, func(b []byte) (any, error) { return parse(b) }, func(v any) []byte { return add(nil, v.(T)) }}
}

// by adapts a function that takes a pointer.
func by[T any](add func([]byte, *T) []byte) func([]byte, T) []byte {
	return func(dst []byte, v T) []byte { return add(dst, &v) }
}

func appendAck(dst []byte, m Mark) []byte { return AppendMark(dst, TypeAck, m) }

func appendOutput(dst []byte, o Output) []byte { return append(AppendOutputHead(dst, &o), o.Data...) }

func appendEvent(dst []byte, e Event) []byte {
	return AppendEvent(dst, e.Token, e.Seq, func(b []byte) []byte { return append(b, e.Event...) })
}

// frames has one frame of each type.
var frames = []frame{
	newFrame("attach", *attach(), by(AppendAttach), ParseAttach),
	newFrame("attach without anything", Attach{}, by(AppendAttach), ParseAttach),
	newFrame("start", Start{1, token, []byte("spec")}, by(AppendStart), ParseStart),
	newFrame("stdin", Stdin{2, token, "c", true, []byte{0, 255}}, by(AppendStdin), ParseStdin),
	newFrame("signal", Signal{3, token, "c", 15}, by(AppendSignal), ParseSignal),
	newFrame("resize", Resize{4, token, 80, 24}, by(AppendResize), ParseResize),
	newFrame("ack", Mark{token, 1 << 60}, appendAck, ParseMark),
	newFrame("forget", token, AppendForget, ParseForget),
	newFrame("time", int64(1e18), AppendTime, ParseTime),
	newFrame("network", Network{3128, []byte("pem"), "1.1.1.1"}, by(AppendNetwork), ParseNetwork),
	newFrame("hello", *hello(), by(AppendHello), ParseHello),
	newFrame("moved", Moved{token, 17, []byte("spec")}, by(AppendMoved), ParseMoved),
	newFrame("output", *output(), appendOutput, ParseOutput),
	newFrame("event", Event{token, 9, []byte("event")}, appendEvent, ParseEvent),
	newFrame("reply", *reply(), by(AppendReply), ParseReply),
	newFrame("taken", uint64(7), AppendTaken, ParseTaken),
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

func TestFramesRoundTrip(t *testing.T) {
	var stream []byte
	for _, f := range frames {
		stream = append(stream, f.bytes...)
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

// TestGoldenFrames: the bytes of a frame stay the same as long as Version does.
func TestGoldenFrames(t *testing.T) {
	const golden = "testdata/frames.txt"
	var got strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&got, "%s: %x\n", f.name, f.bytes)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the frames differ from %s:\n%s", golden, got.String())
	}
}

// TestUnknownFieldsAreSkipped: a later build of the same version may send more.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	for _, f := range frames {
		if got, err := f.parse(withUnknown(f.payload())); err != nil || !reflect.DeepEqual(got, f.want) {
			t.Errorf("%s: got %+v, %v; want %+v", f.name, got, err, f.want)
		}
	}
}

// withUnknown returns b with a field of each wire type that no message has.
func withUnknown(b []byte) []byte {
	b = field.AppendUint(slices.Clip(b), 1000, 1)
	b = field.AppendString(b, 1001, "unknown")
	b = protowire.AppendFixed32(protowire.AppendTag(b, 1002, protowire.Fixed32Type), 1)
	return protowire.AppendFixed64(protowire.AppendTag(b, 1003, protowire.Fixed64Type), 1)
}

// TestTruncatedPayloads: a payload that ends within a field is malformed. One that ends between
// two fields lacks the later ones, but never the token that a message needs.
func TestTruncatedPayloads(t *testing.T) {
	for _, f := range frames {
		for n := range f.payload() {
			got, err := f.parse(f.payload()[:n:n])
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Errorf("%s truncated at %d: %v", f.name, n, err)
				}
				continue
			}
			if v := reflect.ValueOf(got); v.Kind() == reflect.Struct && v.FieldByName("Token").IsValid() && v.FieldByName("Token").Len() != TokenLen {
				t.Errorf("%s truncated at %d has no token: %+v", f.name, n, got)
			}
		}
		if _, err := f.parse(append(slices.Clip(f.payload()), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s with an extra byte: %v", f.name, err)
		}
	}
}

// TestFieldsBeyondTheirLimits: a length or a number beyond its limit is malformed.
func TestFieldsBeyondTheirLimits(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	big := func(n int) []byte { return make([]byte, n) }
	wide := field.AppendUint(field.AppendString(nil, fieldToken, token), 4, 1<<32)
	mark := field.AppendString(nil, 1, token)
	tests := []struct {
		name    string
		payload []byte
		parse   func([]byte) error
	}{
		{"sandbox", AppendAttach(nil, &Attach{Sandbox: long}), errorOf(ParseAttach)},
		{"seed", AppendAttach(nil, &Attach{Seed: big(MaxText + 1)}), errorOf(ParseAttach)},
		{"command of stdin", AppendStdin(nil, &Stdin{Token: token, Command: long}), errorOf(ParseStdin)},
		{"input", AppendStdin(nil, &Stdin{Token: token, Data: big(MaxFrame + 1)}), errorOf(ParseStdin)},
		{"specification", AppendStart(nil, &Start{Token: token, Spec: big(MaxFrame + 1)}), errorOf(ParseStart)},
		{"moved specification", AppendMoved(nil, &Moved{Token: token, Spec: big(MaxFrame + 1)}), errorOf(ParseMoved)},
		{"command of a signal", AppendSignal(nil, &Signal{Token: token, Command: long}), errorOf(ParseSignal)},
		{"certificate", AppendNetwork(nil, &Network{CA: big(MaxCA + 1)}), errorOf(ParseNetwork)},
		{"name server", AppendNetwork(nil, &Network{DNS: long}), errorOf(ParseNetwork)},
		{"output", appendOutput(nil, Output{Token: token, Data: big(MaxData + 1)}), errorOf(ParseOutput)},
		{"event", appendEvent(nil, Event{Token: token, Event: big(MaxEvent + 1)}), errorOf(ParseEvent)},
		{"reply", AppendReply(nil, &Reply{Error: long}), errorOf(ParseReply)},
		{"short token", rawToken(token[1:]), errorOf(ParseMark)},
		{"long token", rawToken(token + "x"), errorOf(ParseMark)},
		{"no token", append(big(headLen), field.AppendUint(nil, fieldSeq, 1)...), errorOf(ParseMark)},
		{"token of a process", AppendFrame(nil, TypeHello, func(dst []byte) []byte { return field.PutBytes(putVersion(dst), 1, rawToken(token + "x")[headLen:]) }), errorOf(ParseHello)},
		{"signal", append(big(headLen), wide...), errorOf(ParseSignal)},
		{"columns", append(big(headLen), wide...), errorOf(ParseResize)},
		{"port", append(big(headLen), field.AppendUint(nil, 1, 1<<16)...), errorOf(ParseNetwork)},
		{"kind", append(big(headLen), field.AppendUint(nil, 3, 1<<32)...), errorOf(ParseReply)},
		{"stream", append(big(headLen), field.AppendUint(mark, 5, 1<<8)...), errorOf(ParseOutput)},
		{"output with much else", field.PutBytes(appendOutput(nil, *output()), 1000, big(maxOutputHead)), errorOf(ParseOutput)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.parse(tt.payload[headLen:]); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// rawToken returns a frame with a token of any length.
func rawToken(token string) []byte {
	return append(make([]byte, headLen), field.PutString(nil, fieldToken, token)...)
}

func errorOf[T any](parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error {
		_, err := parse(b)
		return err
	}
}

// TestOtherVersionsAreRefused: each side refuses another version, whatever follows it.
func TestOtherVersionsAreRefused(t *testing.T) {
	const at = 4 // of the version
	for _, f := range frames {
		if f.name != "attach" && f.name != "hello" {
			continue
		}
		for _, version := range []uint32{0, Version + 1} {
			b := slices.Clone(f.payload())
			binary.LittleEndian.PutUint32(b[at:], version)
			for _, b := range [][]byte{b, b[:at+4], append(b[:at+4:at+4], 0xff)} {
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
		b = append(b, f.bytes...)
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

// FuzzParse: any payload is refused, or survives a round trip, also with unknown fields.
func FuzzParse(f *testing.F) {
	for i := range frames {
		f.Add(i, frames[i].payload())
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		fr := &frames[uint(i)%uint(len(frames))]
		got, err := fr.parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Errorf("%s: %v", fr.name, err)
			}
			return
		}
		again, err := fr.parse(withUnknown(fr.append(got)[headLen:]))
		if err != nil || !bytes.Equal(fr.append(again), fr.append(got)) {
			t.Errorf("%s: %+v, %v; want %+v", fr.name, again, err, got)
		}
	})
}

// FuzzReader: a stream of any bytes yields the same frames as Cut.
func FuzzReader(f *testing.F) {
	for i := range frames {
		f.Add(slices.Concat(frames[i].bytes, AppendEnded(nil)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for rest := b; ; {
			typ, payload, err := r.Next()
			cutTyp, cutPayload, cutRest, cutErr := Cut(rest)
			if (err == nil) != (cutErr == nil) {
				t.Fatalf("Next: %v; Cut: %v", err, cutErr)
			}
			if err != nil {
				return
			}
			if typ != cutTyp || !bytes.Equal(payload, cutPayload) {
				t.Fatalf("Next: %d %x; Cut: %d %x", typ, payload, cutTyp, cutPayload)
			}
			rest = cutRest
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
