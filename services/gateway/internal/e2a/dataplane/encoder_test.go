package dataplane

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// answer is the response as a client decodes it.
type answer struct {
	Output    *string `json:"output"`
	OutputB64 *string `json:"output_b64"`
	ExitCode  *int    `json:"exit_code"`
	Error     string  `json:"error"`
	Message   string  `json:"message"`
}

// run copies a record to a client, in batches of the given size.
func run(t *testing.T, r *surfacetest.Record, batch int) (answer, *source) {
	t.Helper()
	open := func() stream.Source {
		src := r.Source(0)
		src.Batch = batch
		return src
	}
	src := &source{Source: open(), again: func(context.Context) (stream.Source, error) { return open(), nil }, kill: func() { t.Error("the command was killed") }}
	sink := &surfacetest.Sink{}
	if err := stream.Copy(t.Context(), sink, src, &encoder{}); err != nil {
		t.Fatal(err)
	}
	src.Close()
	if sink.Ended != 1 {
		t.Errorf("ended %d times", sink.Ended)
	}
	return decode(t, sink.Raw), src
}

func decode(t *testing.T, raw []byte) (a answer) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil || d.More() || a.Output == nil {
		t.Fatalf("%v in %.300q", err, raw)
	}
	return a
}

// merged returns all output in the order of the record.
func merged(r *surfacetest.Record) (out []byte) {
	for _, e := range r.Events {
		if w, ok := e.Body.(process.Wrote); ok {
			out = append(out, w.Data...)
		}
	}
	return out
}

// E-101, E-104, E-108: the output of any record in any batches, with its bytes if it is not text.
func TestEveryRecord(t *testing.T) {
	for _, r := range surfacetest.Records() {
		t.Run(r.Name, func(t *testing.T) {
			for _, batch := range []int{0, 1, 3} {
				a, src := run(t, r, batch)
				all := merged(r)
				if src.second != (a.OutputB64 != nil) {
					t.Errorf("second pass %v", src.second)
				}
				if a.OutputB64 != nil {
					if b, err := base64.StdEncoding.DecodeString(*a.OutputB64); err != nil || !bytes.Equal(b, all) {
						t.Errorf("bytes %q, %v; want %q", b, err, all)
					}
				} else if *a.Output != string(all) {
					t.Errorf("output %q, want %q", *a.Output, all)
				}
				if !utf8.ValidString(*a.Output) {
					t.Errorf("output %q", *a.Output)
				}
				if x := r.Events[len(r.Events)-1].Body.(process.Finished).Exit; (x.Code == nil) != (a.ExitCode == nil) || x.Code != nil && int(*x.Code) != *a.ExitCode {
					t.Errorf("exit code %v of %+v", a.ExitCode, x)
				}
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	code := func(n int32) *int { i := int(n); return &i }
	str := func(s string) *string { return &s }
	piped := process.Spec{Cmd: "x"}
	tests := []struct {
		name   string
		bodies []process.Body
		want   answer
	}{
		{"both outputs in order", []process.Body{surfacetest.Out("o\n"), surfacetest.Err("e\n"), surfacetest.Code(3)}, answer{Output: str("o\ne\n"), ExitCode: code(3)}},
		{"a rune that the other output interrupts", []process.Body{surfacetest.Out("\xc3"), surfacetest.Err("e"), surfacetest.Out("\xa4"), surfacetest.Code(0)}, answer{Output: str("eä"), ExitCode: code(0)}},
		{"no text", []process.Body{surfacetest.Out("a\xffb\xc3"), surfacetest.Code(0)}, answer{Output: str("a\uFFFDb\uFFFD"), OutputB64: str("Yf9iww=="), ExitCode: code(0)}},
		{"a signal has no exit code", []process.Body{surfacetest.Out("x"), surfacetest.Signal(9, process.CauseSignaled)}, answer{Output: str("x"), Error: "signaled", Message: "signal 9"}},
		{"an end that was not observed is never 0", []process.Body{surfacetest.Out("x"), surfacetest.Unseen(process.CauseHostLost)}, answer{Output: str("x"), Error: "host_lost", Message: "host_lost"}},
		{"it never ran", []process.Body{process.Failed{Kind: uint32(kind.Invalid), Message: "no shell"}, surfacetest.Unseen(process.CauseNotStarted)}, answer{Output: str(""), Error: "invalid", Message: "no shell"}},
		{"lost output is reported", []process.Body{surfacetest.Out("x"), process.Gap{From: 4, To: 4, Reason: "damaged"}, surfacetest.Code(0)}, answer{Output: str("x"), ExitCode: code(0), Error: "output_lost", Message: "a part of the output was lost: damaged"}},
		{"output that is not kept is reported", []process.Body{process.Omitted{Stream: 1, Bytes: 7}, surfacetest.Code(0)}, answer{Output: str(""), ExitCode: code(0), Error: "output_lost", Message: "the output is not kept"}},
		{"dropped output is reported once", []process.Body{process.Truncated{Stream: 1, Dropped: 7}, process.Truncated{Stream: 2, Dropped: 1}, surfacetest.Out("\xff"), surfacetest.Code(0)},
			answer{Output: str("\uFFFD"), OutputB64: str("/w=="), ExitCode: code(0), Error: "output_lost", Message: "7 bytes of the output were dropped"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, batch := range []int{0, 1} {
				got, _ := run(t, surfacetest.NewRecord(tt.name, piped, tt.bodies...), batch)
				g, err := json.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				w, err := json.Marshal(tt.want)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(g, w) {
					t.Errorf("got  %s\nwant %s", g, w)
				}
			}
		})
	}
}

// A stream that is ended from outside is complete JSON with an error, also in the second pass, and ends
// the command.
func TestADrainEndsTheObject(t *testing.T) {
	drained := kind.New(kind.Unavailable, "stream", "", "shutting down")
	for _, bodies := range [][]process.Body{{}, {surfacetest.Out("ab\xe2\x82")}, {surfacetest.Out("ab\xff"), surfacetest.Code(0), surfacetest.Out("x")}} {
		n := &encoder{}
		var dst []byte
		r := surfacetest.NewRecord("drain", process.Spec{}, bodies...)
		for i := range r.Events {
			if _, over := r.Events[i].Body.(process.Finished); over {
				r.Events[i].Body, r.Events[i+1].Seq = process.Signaled{}, 1
			}
			dst, _ = n.AppendEvent(dst, r.Events[i])
		}
		if b, wait := n.AppendIdle(nil, time.Hour); len(b) > 0 || wait != 0 {
			t.Errorf("idle: %q, %v", b, wait)
		}
		a := decode(t, n.AppendEnd(dst, drained))
		if a.Error != "unavailable" || a.ExitCode != nil || len(bodies) > 0 && (*a.Output)[:2] != "ab" {
			t.Errorf("%+v", a)
		}
	}
}

// E-103: closing the source before the end of the record ends the command.
func TestACommandEndsWithItsRequest(t *testing.T) {
	r := surfacetest.NewRecord("x", process.Spec{}, surfacetest.Out("a"), surfacetest.Code(0))
	for read, want := range map[int]int{0: 1, 1: 1, 3: 1, 4: 0} {
		killed := 0
		src := r.Source(0)
		src.Batch = 1
		s := &source{Source: src, kill: func() { killed++ }}
		for range read {
			if _, err := s.Next(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		if killed != want || !src.Closed {
			t.Errorf("after %d events: killed %d times, want %d", read, killed, want)
		}
	}
}

// Whatever the bytes and the frames, the response is JSON with the text and the bytes of the output.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("a\xc3\xa9\xff\n\"\\\x00"), uint8(2))
	f.Add([]byte("plain"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var bodies []process.Body
		for rest := data; len(rest) > 0; {
			n := min(len(rest), int(size)%7+1)
			bodies, rest = append(bodies, surfacetest.Out(string(rest[:n]))), rest[n:]
		}
		a, _ := run(t, surfacetest.NewRecord("fuzz", process.Spec{}, append(bodies, surfacetest.Code(0))...), 2)
		if want := string([]rune(string(data))); *a.Output != want {
			t.Fatalf("output %q, want %q", *a.Output, want)
		}
		if (a.OutputB64 == nil) != utf8.Valid(data) {
			t.Fatalf("bytes %v of %q", a.OutputB64, data)
		}
		if a.OutputB64 != nil && *a.OutputB64 != base64.StdEncoding.EncodeToString(data) {
			t.Fatalf("bytes %s of %q", *a.OutputB64, data)
		}
	})
}
