package connect

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// trimmed is a record whose first frames are past retention.
type trimmed struct{ stream.Source }

var errTrimmed = errors.New("trimmed")

func (trimmed) Next(context.Context, time.Duration) ([]process.Event, error) { return nil, errTrimmed }

func TestATrimmedRecordIsReadFromItsFirstRetainedFrame(t *testing.T) {
	r := recordOf(surfacetest.Out("gone\n"), surfacetest.Out("left\n"), surfacetest.Code(0))
	src := &retained{
		Source: trimmed{r.Source(0)},
		first:  func(err error) (process.Seq, bool) { return 4, errors.Is(err, errTrimmed) },
		read:   func(_ context.Context, after process.Seq) (stream.Source, error) { return r.Source(after), nil },
	}
	enc := &encoder{id: surfacetest.ID, byLine: true, keepalive: time.Minute, budget: budget()}
	enc.open(7, &replayFrom{})
	sink := &surfacetest.Sink{}
	if err := stream.Copy(t.Context(), sink, src, enc); err != nil {
		t.Fatal(err)
	}
	same(t, (&reply{body: string(sink.Raw)}).lines(t), []string{
		`{"event":{"start":{"pid":7}},"process":"` + string(surfacetest.ID) + `","seq":3}`,
		`{"event":{"keepalive":{}},"gap":{"from":1,"to":3,"reason":"retention has passed"},"seq":3}`,
		`{"event":{"data":{"stdout":"bGVmdAo="}},"seq":4}`,
		`{"event":{"end":{"exitCode":0,"exited":true,"status":"","error":"its first output passed out of retention"}},"seq":5}`,
		`END {}`,
	})
}

func TestDroppedOutputIsReported(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Out("a\n"), process.Truncated{Stream: process.Stdout, Dropped: 99}, surfacetest.Code(0))), Config{})
	r := s.stream(t, "Start", run)
	same(t, r.lines(t)[2:], []string{
		`{"event":{"keepalive":{}},"truncated":{"stream":"stdout","dropped":99},"seq":4}`,
		`{"event":{"end":{"exitCode":0,"exited":true,"status":"","error":"part of the output was dropped"}},"seq":5}`,
		`END {}`,
	})
}

// Output that is not kept is no loss: the end has no error.
func TestOutputThatIsNotKeptIsReported(t *testing.T) {
	s := serve(t, newFake(recordOf(surfacetest.Out("a\n"), process.Omitted{Stream: process.Stdout, Offset: 2, Bytes: 99}, surfacetest.Code(0))), Config{})
	r := s.stream(t, "Start", run)
	same(t, r.lines(t)[2:], []string{
		`{"event":{"keepalive":{}},"omitted":{"stream":"stdout","bytes":99},"seq":4}`,
		`{"event":{"end":{"exitCode":0,"exited":true,"status":"","error":""}},"seq":5}`,
		`END {}`,
	})
}

// FuzzEnvelopes reads hostile requests: each yields messages and then an end or an
// error, and no message is larger than the limit.
func FuzzEnvelopes(f *testing.F) {
	f.Add(envelope(0, "{}"), false)
	f.Add(envelope(1, string(appendGzip(nil, []byte(strings.Repeat("x", 5000))))), true)
	f.Add("\x00\xff\xff\xff\xff", true)
	f.Add(envelope(0, "")+envelope(2, "{}"), false)
	f.Fuzz(func(t *testing.T, body string, zipped bool) {
		const limit = 1000
		e := envelopes{r: strings.NewReader(body), gzip: zipped, max: limit}
		for range len(body)/envelopeHead + 2 {
			msg, err := e.next()
			var w *wireError
			switch {
			case errors.Is(err, io.EOF), errors.As(err, &w):
				return
			case err != nil:
				t.Fatalf("an error without a code: %v", err)
			case len(msg) > limit:
				t.Fatalf("a message of %d bytes", len(msg))
			}
		}
		t.Fatal("the reader does not end")
	})
}
