package surfacetest

import (
	"context"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// What is the type of a [Unit].
type What int

// Units of a stream that clients distinguish.
const (
	Other     What = iota // any other event
	Start                 // the process began
	Data                  // output
	End                   // the exit
	Keepalive             // no content
	Gap                   // output or events are missing
	Last                  // the end of the stream; Err is set unless it is orderly
)

// Unit is one event as decoded by a client of the protocol.
type Unit struct {
	What     What
	Stream   process.Stream // of Data
	Data     []byte         // of Data
	Code     int            // of End; -1 for a signal
	Err      string         // of Last, unless it is orderly: the protocol's name of the error
	Position string         // position from which a client resumes after this unit; empty: unchanged
}

// Surface is one protocol in one of its modes.
type Surface struct {
	// Encoder returns an encoder for a client with a position ("": a new client), and the
	// seq after which its Source begins.
	Encoder func(t *testing.T, r *Record, position string) (stream.Encoder, process.Seq)
	// Decode decodes what a client received, which always ends between two units.
	Decode func(t *testing.T, raw []byte) []Unit
	// Text reports that output is text: invalid UTF-8 is replaced.
	Text bool
	// MaxLine is how much of a line is buffered before it is sent; 0: little.
	MaxLine int
	// Exits reports that the protocol has a unit for an exit (End).
	Exits bool
}

// Sink is a stream.Writer that keeps the bytes that it receives.
type Sink struct {
	Raw     []byte
	Flushes int
	Ended   int
	Block   chan struct{} // not nil: Flush waits for it
	Before  func()        // called by each Flush and End; may be nil
}

// Flush keeps the bytes.
func (s *Sink) Flush(buf []byte) error {
	if s.Before != nil {
		s.Before()
	}
	if s.Block != nil {
		<-s.Block
	}
	s.Raw = append(s.Raw, buf[stream.Headroom:]...)
	s.Flushes++
	return nil
}

// End keeps the bytes and counts.
func (s *Sink) End(buf []byte) error {
	s.Ended++
	return s.Flush(buf)
}

// read copies a record from a position to a client.
func (s *Surface) read(t *testing.T, r *Record, position string, batch int) []Unit {
	t.Helper()
	enc, after := s.Encoder(t, r, position)
	src := r.Source(after)
	src.Batch = batch
	return s.copy(t, src, enc)
}

func (s *Surface) copy(t *testing.T, src *Source, enc stream.Encoder) []Unit {
	t.Helper()
	sink := &Sink{}
	if err := stream.Copy(context.Background(), sink, src, enc); err != nil {
		t.Fatalf("Copy: %v", err)
	}
	if sink.Ended != 1 {
		t.Fatalf("ended %d times, want once", sink.Ended)
	}
	return s.Decode(t, sink.Raw)
}

// output joins the bytes of a stream.
func output(units []Unit, s process.Stream) []byte {
	var out []byte
	for i := range units {
		if units[i].What == Data && units[i].Stream == s {
			out = append(out, units[i].Data...)
		}
	}
	return out
}

// want returns what a client must have received of b in the end.
func (s *Surface) want(b []byte) []byte {
	if !s.Text {
		return b
	}
	return []byte(string([]rune(string(b)))) // each byte that is in no rune is one U+FFFD
}
