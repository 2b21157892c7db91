package session_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// sink is a transport that counts what is written.
type sink struct {
	in     chan []byte
	over   chan struct{} // closed when a close or an answer was written
	want   string
	closed chan struct{}
	once   func()
}

func (s *sink) Read() ([]byte, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.closed:
		return nil, io.EOF
	}
}

func (s *sink) Write(messages [][]byte) error {
	for _, m := range messages {
		if strings.HasPrefix(string(m[:min(len(m), 64)]), s.want) {
			select {
			case s.over <- struct{}{}:
			case <-s.closed:
				return errors.New("closed")
			}
		}
	}
	return nil
}

func (s *sink) Close() { s.once() }

func newSink(want string) *sink {
	s := &sink{in: make(chan []byte), over: make(chan struct{}), want: want, closed: make(chan struct{})}
	done := false
	s.once = func() {
		if !done {
			done = true
			close(s.closed)
		}
	}
	return s
}

// BenchmarkOutput pushes 64 MiB of output from a record in memory per operation.
func BenchmarkOutput(b *testing.B) {
	chunk := []byte(strings.Repeat("x", 64<<10))
	const chunks = 1024
	w := newWorld(func(_ *world, p *fakeProcess) {
		bodies := make([]process.Body, chunks)
		for i := range bodies {
			bodies[i] = process.Wrote{Stream: process.Stdout, Data: chunk}
		}
		p.append(bodies...)
		p.exit(0)
	})
	b.SetBytes(chunks * int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		w.byName, w.attached = map[string]*fakeProcess{}, false
		s := newSink(`{"method":"process/closed"`)
		done := make(chan error, 1)
		go func() { done <- session.Serve(context.Background(), s, session.Config{Opener: w}) }()
		s.in <- []byte(`{"id":0,"method":"initialize","params":{"clientName":"test"}}`)
		s.in <- []byte(`{"method":"initialized"}`)
		s.in <- []byte(`{"id":1,"method":"process/start","params":` + start("p", "") + `}`)
		<-s.over
		close(s.closed)
		s.once = func() {}
		<-done
	}
}

// BenchmarkCall answers the cheapest request.
func BenchmarkCall(b *testing.B) {
	s := newSink(`{"id":1`)
	done := make(chan error, 1)
	go func() { done <- session.Serve(context.Background(), s, session.Config{Opener: newWorld(quiet)}) }()
	s.in <- []byte(`{"id":0,"method":"initialize","params":{"clientName":"test"}}`)
	s.in <- []byte(`{"method":"initialized"}`)
	b.ReportAllocs()
	for b.Loop() {
		s.in <- []byte(`{"id":1,"method":"environment/status"}`)
		<-s.over
	}
	s.Close()
	<-done
}

// BenchmarkIdle reports the memory of an idle session. Run it with -benchtime=2000x.
func BenchmarkIdle(b *testing.B) {
	memory := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := memory()
	all := make([]*sink, b.N)
	for i := range all {
		s := newSink(`{"id":1`)
		all[i] = s
		w := newWorld(quiet)
		go session.Serve(context.Background(), s, session.Config{Opener: w})
		s.in <- []byte(`{"id":0,"method":"initialize","params":{"clientName":"test"}}`)
		s.in <- []byte(`{"method":"initialized"}`)
		s.in <- []byte(`{"id":1,"method":"environment/status"}`)
		<-s.over
	}
	b.ReportMetric(float64(memory()-before)/float64(b.N), "B/session")
	for _, s := range all {
		s.Close()
	}
}
