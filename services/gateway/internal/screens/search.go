package screens

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/screen"
)

// Limits of a search.
const (
	maxQuery   = 256
	maxHits    = 100      // of a request
	maxScan    = 32 << 20 // bytes of output that a request reads
	maxExcerpt = 512      // bytes of a line in a response
	searchTime = 5 * time.Second
)

// hit is a line that contains the text.
type hit struct {
	Seq  process.Seq `json:"seq"`
	Time time.Time   `json:"time"`
	Line string      `json:"line"`
}

// found is the response of a search.
type found struct {
	Hits []hit       `json:"hits"`
	Next process.Seq `json:"next"` // after which the search continues; 0: it is complete
}

// search responds with the lines of a process's output that contain a text.
func (h *Handler) search(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	q := strings.Clone(c.Query("q"))
	if q == "" || len(q) > maxQuery || !utf8.ValidString(q) {
		return kind.Newf(kind.Invalid, "search", string(id), "q: must be text of 1 to %d bytes", maxQuery)
	}
	after, err := seq(c, "after")
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	out, err := search(ctx, h.cfg.Records, p, id, after, q)
	if err != nil {
		return record.WriteError(c, err)
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(out)
}

func search(ctx context.Context, r record.Records, p core.Principal, id process.ID, after process.Seq, q string) (found, error) {
	tip, err := core.TailFrom(ctx, r, p, id, after)
	switch {
	case kind.Is(err, kind.NotFound):
		if _, err := r.Process(ctx, p, id); err != nil {
			return found{}, err
		}
		return found{Hits: []hit{}}, nil
	case err != nil:
		return found{}, err
	case after > tip.Last:
		return found{}, &record.RangeError{ID: id, Kind: kind.Invalid, Last: tip.Last}
	case after == tip.Last:
		return found{Hits: []hit{}}, nil
	}
	src, err := openAt(ctx, r, p, id, after)
	if err != nil {
		return found{}, err
	}
	defer src.Close()
	s := newSearcher(q, after)
	limit := time.NewTimer(searchTime)
	defer limit.Stop()
	for s.last < tip.Last && !s.enough() {
		batch, err := src.Next(ctx, 0)
		for i := range batch {
			if s.add(&batch[i]); s.enough() || s.last >= tip.Last {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found{}, err
		}
		select {
		case <-limit.C:
			s.scanned = maxScan
		default:
		}
	}
	return s.result(s.last < tip.Last), nil
}

// searcher finds lines in the output of a record.
type searcher struct {
	query   []byte
	text    screen.Text
	hits    []hit
	scanned int
	after   process.Seq
	last    process.Seq // the last event scanned

	starts []start // of the events in the pending line
	now    process.Event
}

// start is where the text of an event begins in a line.
type start struct {
	at   int
	seq  process.Seq
	time time.Time
}

func newSearcher(q string, after process.Seq) *searcher {
	s := &searcher{query: []byte(q), after: after, last: after, hits: []hit{}}
	s.text.Line = s.line
	return s
}

func (s *searcher) enough() bool { return s.scanned >= maxScan || len(s.hits) >= maxHits }

func (s *searcher) add(e *process.Event) {
	s.last = e.Seq
	w, ok := e.Body.(process.Wrote)
	if !ok {
		return
	}
	s.now = process.Event{Seq: e.Seq, Time: e.Time}
	s.starts = append(s.starts, start{len(s.text.Pending()), e.Seq, e.Time})
	s.text.Write(w.Data)
	s.scanned += len(w.Data)
	if len(s.text.Pending()) == 0 {
		s.starts = s.starts[:0]
	}
}

// line searches a line that has ended.
func (s *searcher) line(line []byte) {
	if at := bytes.Index(line, s.query); at >= 0 && len(s.hits) < maxHits {
		from := s.starts[0]
		for _, o := range s.starts {
			if o.at < at+len(s.query) {
				from = o
			}
		}
		s.hits = append(s.hits, hit{from.seq, from.time.UTC(), excerpt(line, at)})
	}
	s.starts = append(s.starts[:0], start{0, s.now.Seq, s.now.Time}) // the rest of the event begins a line
}

// excerpt returns the part of a long line around a match.
func excerpt(line []byte, at int) string {
	from := max(0, min(at-maxExcerpt/4, len(line)-maxExcerpt))
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	end := min(from+maxExcerpt, len(line))
	for end < len(line) && !utf8.RuneStart(line[end]) {
		end--
	}
	return string(line[from:end])
}

// result returns what was found; with more, output follows what was scanned. A line that is cut
// there is scanned again by the next request.
func (s *searcher) result(more bool) found {
	if !more {
		s.text.Flush()
		return found{Hits: s.hits}
	}
	next := s.last
	if len(s.text.Pending()) > 0 && len(s.hits) < maxHits {
		if first := s.starts[0].seq - 1; first > s.after {
			next = first
		} else {
			s.text.Flush()
		}
	}
	for n := len(s.hits); n > 0 && s.hits[n-1].Seq > next; n-- {
		s.hits = s.hits[:n-1]
	}
	return found{Hits: s.hits, Next: next}
}
