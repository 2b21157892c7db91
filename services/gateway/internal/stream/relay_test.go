package stream_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// faulty is the server's side of a switched connection; one direction of it panics.
type faulty struct {
	reads  bool
	closed chan struct{}
	once   sync.Once
}

func (f *faulty) Read([]byte) (int, error) {
	if f.reads {
		panic("no word")
	}
	<-f.closed
	return 0, io.EOF
}

func (*faulty) Write([]byte) (int, error) { panic("no word") }
func (*faulty) CloseWrite() error         { return nil }

func (f *faulty) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func TestSwitchSurvivesAPanic(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reads bool
	}{{"in the reader", true}, {"in the writer", false}} {
		t.Run(tt.name, func(t *testing.T) {
			var s *server
			to, over := &faulty{reads: tt.reads, closed: make(chan struct{})}, make(chan struct{})
			s = serveBy(t, stream.Config{}, true, func(c *fiber.Ctx) error {
				s.streams.Switch(c, &http.Response{Header: http.Header{"Upgrade": {"words"}}}, to, func() { close(over) })
				return nil
			})
			c, r := s.dial(t)
			if _, err := io.WriteString(c, post); err != nil {
				t.Fatal(err)
			}
			if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %v, %v", res, err)
			}
			if _, err := io.WriteString(c, "word"); err != nil && !tt.reads {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil && s.streams.Open() > 0 {
				t.Errorf("the client's connection is not closed: %v", err)
			}
			for _, end := range []chan struct{}{over, to.closed} {
				select {
				case <-end:
				case <-time.After(time.Minute):
					t.Fatal("Switch does not end")
				}
			}
		})
	}
}
