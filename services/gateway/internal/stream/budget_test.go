package stream_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// A tenant may use as much of the pool as it leaves free, plus BaseBudget per stream.
func TestBudgetIsShared(t *testing.T) {
	const mib = 1 << 20
	s := stream.New(stream.Config{Budget: 4 * mib})
	first, second, other := s.Budget("a"), s.Budget("a"), s.Budget("b")
	for _, step := range []struct {
		name   string
		budget *stream.Budget
		n      int
		want   bool
	}{
		{"half of the pool", first, stream.BaseBudget + 2*mib, true},
		{"more than half", first, stream.BaseBudget + 2*mib + 1, false},
		{"another stream's base budget", second, stream.BaseBudget, true},
		{"more than another stream's base budget", second, stream.BaseBudget + 1, false},
		{"another tenant's half of the rest", other, stream.BaseBudget + mib, true},
		{"more than that half", other, stream.BaseBudget + mib + 1, false},
		{"less than it has", first, mib, true},
	} {
		if got := step.budget.Grow(step.n); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	first.Shrink(stream.BaseBudget + mib)
	other.Shrink(0)
	if !second.Grow(stream.BaseBudget+mib) || second.Grow(stream.BaseBudget+mib+1) {
		t.Error("released memory is not available again")
	}
}

func TestReaderFailsOverBudget(t *testing.T) {
	const size = stream.BaseBudget + 1000
	s := stream.New(stream.Config{Budget: 2000})
	first := s.Budget("a")
	if b, err := io.ReadAll(first.Reader(strings.NewReader(strings.Repeat("x", size)))); len(b) != size || err != nil {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
	if _, err := io.ReadAll(s.Budget("a").Reader(strings.NewReader(strings.Repeat("x", size)))); !errors.Is(err, stream.ErrOverBudget) {
		t.Errorf("a second reader: %v", err)
	}
}

// A response counts against the budget until it is read; then the connection serves the next request.
func TestAnswerHoldsBudgetUntilItIsRead(t *testing.T) {
	const size = 16 << 20 // more than the socket buffers hold
	var s *server
	s = serveBy(t, stream.Config{Budget: 2 * size}, true, func(c *fiber.Ctx) error {
		c.Set("X-Name", "large")
		err := s.streams.Answer(c, make([]byte, size), s.streams.Budget("a"), nil)
		if err != nil {
			return c.SendStatus(http.StatusServiceUnavailable)
		}
		return nil
	})
	stuck, stuckReader := s.dial(t)
	if _, err := io.WriteString(stuck, post); err != nil {
		t.Fatal(err)
	}
	if _, err := stuckReader.Peek(1); err != nil {
		t.Fatal(err)
	}
	c, r := s.dial(t)
	if res, body := ask(t, c, r, post); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while another response is unread: %s, %d bytes", res.Status, len(body))
	}
	if res, body := answer(t, stuckReader); len(body) != size || res.Header.Get("X-Name") != "large" || res.Close {
		t.Errorf("got %d bytes, %v", len(body), res.Header)
	}
	for range 2 {
		for deadline := time.Now().Add(5 * time.Second); ; {
			res, body := ask(t, c, r, post)
			if len(body) == size {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after it was read: %s", res.Status)
			}
		}
	}
}

// greedy grows its budget with each event.
type greedy struct {
	words
	budget *stream.Budget
}

func (g *greedy) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	g.budget.Grow(stream.BaseBudget + 1)
	return g.words.AppendEvent(dst, e)
}

// A stream releases its budget however it ends.
func TestServeReleasesTheBudget(t *testing.T) {
	for _, tt := range []struct {
		name   string
		panics process.Seq
		leaves bool
	}{{"in order", 0, false}, {"by a panic", 2, false}, {"when its client disconnects", 0, true}} {
		t.Run(tt.name, func(t *testing.T) {
			// With a pool of two bytes a tenant may have one.
			streams := stream.New(stream.Config{Budget: 2})
			budget := streams.Budget("a")
			s := serve(t, stream.Config{}, true, stream.Head{Budget: budget}, func(*fiber.Ctx) (stream.Source, stream.Encoder) {
				src := script(surfacetest.Out("a"), surfacetest.Code(0)).Source(0)
				if tt.leaves {
					src.Hold = 2
				}
				return src, &greedy{words{panics: tt.panics}, budget}
			})
			c, r := s.dial(t)
			if _, err := io.WriteString(c, post); err != nil {
				t.Fatal(err)
			}
			if tt.leaves {
				if _, err := r.Peek(1); err != nil {
					t.Fatal(err)
				}
				if streams.Budget("a").Grow(stream.BaseBudget + 1) {
					t.Error("it did not grow its budget")
				}
				c.Close()
			}
			select {
			case <-s.closed:
			case <-time.After(time.Minute):
				t.Fatal("the stream continues")
			}
			if !streams.Budget("a").Grow(stream.BaseBudget + 1) {
				t.Error("the budget is not released")
			}
		})
	}
}
