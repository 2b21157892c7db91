package connect

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// generated decodes the message in raw with the generated type. If bare, it fails on
// fields that are not in E2B's schema.
func generated(t *testing.T, w *wire, raw []byte) *pb.StartResponse {
	t.Helper()
	flags, payloads := split(t, raw)
	if len(payloads) != 1 || flags[0] != 0 {
		t.Fatalf("%d messages with flags %v, want one with 0", len(payloads), flags)
	}
	m := &pb.StartResponse{}
	var err error
	if w.binary {
		err = proto.Unmarshal(payloads[0], m)
	} else {
		err = protojson.UnmarshalOptions{DiscardUnknown: !w.bare}.Unmarshal(payloads[0], m)
	}
	if err != nil {
		t.Fatalf("%q: %v", payloads[0], err)
	}
	if w.bare && len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("%x has unknown fields", payloads[0])
	}
	m.ProtoReflect().SetUnknown(nil)
	return m
}

// responseOf and dataOf return what a frame appended by hand must decode to.
func responseOf(ev *pb.ProcessEvent) *pb.StartResponse { return &pb.StartResponse{Event: ev} }

func dataOf(s process.Stream, b []byte) *pb.StartResponse {
	d := &pb.ProcessEvent_DataEvent{}
	switch s {
	case process.Stdout:
		d.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: b}
	case process.Stderr:
		d.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: b}
	case process.PTY:
		d.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: b}
	}
	return responseOf(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: d}})
}

// FuzzFrames compares the frames appended by hand with the generated types.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("hello\n"), []byte(nil), uint64(1), uint8(0), uint32(1), int32(0), "")
	f.Add([]byte(nil), []byte(surfacetest.AllBytes()), uint64(math.MaxUint64), uint8(0xff), uint32(math.MaxUint32), int32(-1), "signal: killed")
	f.Add([]byte("a"), []byte("bc"), uint64(127), uint8(2), uint32(128), int32(255), "\"\\\u2028<\x00é")
	f.Add(bytes.Repeat([]byte{7}, 3000), []byte("x"), uint64(128), uint8(4), uint32(16384), int32(math.MinInt32), "x")
	f.Fuzz(func(t *testing.T, a, b []byte, seq uint64, mode uint8, pid uint32, code int32, text string) {
		text = string([]rune(text)) // strings on the wire are valid UTF-8
		w := &wire{binary: mode&1 != 0, gzip: mode&2 != 0, bare: mode&4 != 0}
		n := &meta{seq: seq, cursor: cursor{seq: seq, sent: [2]uint64{seq, uint64(pid)}, partial: mode&8 != 0}}
		s := process.Stdout + process.Stream(mode>>4)%3
		check := func(what string, raw []byte, want *pb.StartResponse) {
			if got := generated(t, w, raw); !proto.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		check("data", w.data(nil, s, a, b, n), dataOf(s, append(append([]byte{}, a...), b...)))
		check("keepalive", w.keepalive(nil, nil), responseOf(&pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}))
		check("end", w.end(nil, &ending{code: code, exited: mode&16 != 0, status: text, err: text}, n),
			responseOf(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: &pb.ProcessEvent_EndEvent{
				ExitCode: code, Exited: mode&16 != 0, Status: text, Error: &text}}}))
		n.process = surfacetest.ID
		check("start", w.start(nil, pid, n),
			responseOf(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: pid}}}))
		if got, want := string(appendBase64(nil, a, b)), base64.StdEncoding.EncodeToString(append(append([]byte{}, a...), b...)); got != want {
			t.Errorf("base64 of %q and %q: got %s, want %s", a, b, got, want)
		}
	})
}

// TestEnvelopeHasTheDeclaredLength covers C-004.
func TestEnvelopeHasTheDeclaredLength(t *testing.T) {
	w := &wire{}
	raw := w.data(nil, process.Stdout, nil, []byte("hello\n"), &meta{seq: 7})
	payload := `{"event":{"data":{"stdout":"aGVsbG8K"}},"seq":7}`
	if want := string([]byte{0, 0, 0, 0, byte(len(payload))}) + payload; string(raw) != want {
		t.Errorf("got %q, want %q", raw, want)
	}
}

func BenchmarkData(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
		n := meta{seq: 123456}
		for _, m := range []struct {
			name string
			wire wire
		}{{"JSON", wire{}}, {"protobuf", wire{binary: true}}} {
			b.Run(m.name+"/"+strconv.Itoa(size), func(b *testing.B) {
				var buf []byte
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					buf = m.wire.data(buf[:0], process.Stdout, nil, data, &n)
				}
			})
			b.Run(m.name+"-generated/"+strconv.Itoa(size), func(b *testing.B) {
				var buf []byte
				f := format{binary: m.wire.binary}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					var at int
					buf, at = openEnvelope(buf[:0])
					buf, _ = f.append(buf, dataOf(process.Stdout, data))
					buf = closeEnvelope(buf, at, 0)
				}
			})
		}
	}
}

// BenchmarkLines encodes frames of 64 KiB whose last line continues in the next.
func BenchmarkLines(b *testing.B) {
	for _, line := range []int{16, 100, 2000} {
		data := bytes.Repeat(append(bytes.Repeat([]byte("x"), line-1), '\n'), 64<<10/line+1)[:64<<10]
		b.Run(strconv.Itoa(line), func(b *testing.B) {
			e := &encoder{byLine: true, started: true, keepalive: 1e12, budget: budget()}
			var buf []byte
			var at uint64
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = e.AppendEvent(buf[:0], process.Event{Seq: at, Body: process.Wrote{Stream: process.Stdout, Offset: at, Data: data}})
				buf, _ = e.AppendIdle(buf, 0)
				at += uint64(len(data))
			}
		})
	}
}
