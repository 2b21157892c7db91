package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// A record is read in segments: forward there is one, which ends when the page is full;
// backward each segment precedes the previous one. A line belongs to the segment in which
// it ends. Its beginning is searched for within a limited number of events or bytes.
const (
	firstSegment = 16
	mostSegment  = 256
	firstBefore  = 16
	mostBefore   = 1024
	bytesBefore  = 1 << 20
	logEvent     = 64 // bytes that an event counts for in addition to its output
)

// scan extracts the lines of one record's output.
type scan struct {
	page  *logPage
	src   *source
	reach *reach
	share int // bytes that it may read
	used  int
	out   []logEntry  // in the page's order
	first process.Seq // the events before it are past retention

	partial map[process.Stream][]byte // incomplete lines
	last    time.Time                 // time of the last event
	lines   []logEntry                // lines of the segment, in the record's order
}

// read reads the stored part of the record.
func (s *scan) read(ctx context.Context) error {
	tip, err := s.src.records.Tail(ctx, s.src.p, s.reach.id)
	after, until := process.Seq(0), tip.Last
	if err == nil && s.reach.within {
		after, until, err = s.locate(ctx, tip.Last)
	}
	if kind.Is(err, kind.NotFound) {
		return nil // its record is past retention
	}
	if err != nil {
		return err
	}
	// While a record has a reader, further readers attach at its end without cost.
	r, err := s.src.records.Read(ctx, s.src.p, s.reach.id, until)
	if err != nil {
		return err
	}
	defer r.Close()
	if s.page.q.backward {
		return s.backward(ctx, until, tip.Last)
	}
	_, err = s.segment(ctx, after, until, tip.Last)
	s.out = s.lines
	return err
}

// locate finds the events at which the page starts.
func (s *scan) locate(ctx context.Context, last process.Seq) (after, until process.Seq, err error) {
	q := s.page.q
	if q.backward {
		_, until, err = s.src.records.SeqsAround(ctx, s.src.p, s.reach.id, q.at(q.start-1))
		return 0, min(until, last), err
	}
	after, _, err = s.src.records.SeqsAround(ctx, s.src.p, s.reach.id, q.at(q.start))
	return min(after, last), last, err
}

// backward reads segments from the end, each twice as long as the previous one.
func (s *scan) backward(ctx context.Context, until, last process.Seq) error {
	for n := process.Seq(firstSegment); until > 0; n = min(2*n, mostSegment) {
		after := until - min(until, n)
		begin, err := s.segment(ctx, after, until, last)
		if err != nil {
			return err
		}
		slices.Reverse(s.lines)
		s.out = append(s.out, s.lines...)
		first := after == 0 || after < s.first || begin.IsZero()
		if first || len(s.out) >= s.page.q.limit || s.over(s.page.q.depth(begin)) {
			return nil
		}
		until = after
	}
	return nil
}

// over reports whether lines beyond a depth need not be read. If a read limit is the
// reason, the page ends before that depth.
func (s *scan) over(depth int64) bool {
	if depth > s.page.edge {
		return true
	}
	// A page that ends where it begins would look like the last one.
	further := depth >= s.page.q.start+2 || s.used >= s.share+maxLogRead
	if s.used < s.share || !further {
		return false
	}
	s.page.end(depth)
	return true
}

// segment extracts the lines of the events in (after, until]; last is the record's last
// event. It returns the time of the first event; zero: none is retained.
func (s *scan) segment(ctx context.Context, after, until, last process.Seq) (begin time.Time, err error) {
	if err := s.before(ctx, after); err != nil {
		return begin, err
	}
	s.lines = nil
	enough := false
	err = s.events(ctx, after, until, func(e *process.Event) bool {
		if begin.IsZero() {
			begin = s.reach.when(e.Time)
		}
		enough = !s.page.q.backward && (s.full() || s.over(s.page.q.depth(s.reach.when(e.Time))))
		if !enough {
			s.took(e)
		}
		return !enough
	})
	if until == last && !enough {
		for stream, line := range s.partial {
			if len(line) > 0 {
				s.line(s.last, stream, line)
			}
		}
	}
	return begin, err
}

// before finds the lines that are incomplete at a position.
func (s *scan) before(ctx context.Context, at process.Seq) error {
	for n := process.Seq(firstBefore); ; n *= 4 {
		s.partial = make(map[process.Stream][]byte)
		from, used := at-min(at, n), s.used
		err := s.events(ctx, from, at, func(e *process.Event) bool {
			s.took(e)
			return true
		})
		if err != nil || from < s.first || from == 0 || n >= mostBefore || s.used-used >= bytesBefore {
			return err
		}
	}
}

// events passes the events in (after, until] to take until that returns false.
func (s *scan) events(ctx context.Context, after, until process.Seq, take func(*process.Event) bool) error {
	if after >= until {
		return nil
	}
	r, err := s.src.records.Read(ctx, s.src.p, s.reach.id, after)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.After() < until {
		batch, err := r.Next(ctx, 0)
		if first, gone := record.FirstSeq(err); gone && first > after+1 {
			s.first = first
			return s.events(ctx, first-1, until, take)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range batch {
			if batch[i].Seq > until || !take(&batch[i]) {
				return nil
			}
		}
	}
	return nil
}

// full reports whether later lines of the segment are not needed.
func (s *scan) full() bool { return !s.page.q.backward && len(s.lines) >= s.page.q.limit }

func (s *scan) took(e *process.Event) {
	s.last = s.reach.when(e.Time)
	s.used += logEvent
	if w, ok := e.Body.(process.Wrote); ok {
		s.used += len(w.Data)
		s.wrote(&w)
	}
}

// wrote splits output into lines, and truncates those longer than maxLogLine: a log is for
// people.
func (s *scan) wrote(w *process.Wrote) {
	partial, data := s.partial[w.Stream], w.Data
	for len(data) > 0 {
		n := bytes.IndexByte(data, '\n')
		whole := n >= 0
		if !whole {
			n = len(data)
		}
		if left := maxLogLine - len(partial); n > left {
			n, whole = left, false
		}
		partial, data = append(partial, data[:n]...), data[n:]
		if whole {
			data = data[1:]
		}
		if whole || len(partial) == maxLogLine {
			s.line(s.last, w.Stream, partial)
			partial = partial[:0]
		}
	}
	s.partial[w.Stream] = partial
}

func (s *scan) line(at time.Time, stream process.Stream, line []byte) {
	level := "info"
	if stream == process.Stderr {
		level = "error"
	}
	q, depth := s.page.q, s.page.q.depth(at)
	if depth < q.start || depth > s.page.edge || s.full() || q.level == "error" && level != "error" {
		return
	}
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(line, []byte{'\r'})), "\ufffd")
	if len(line) == 0 && q.search != "" || !strings.Contains(text, q.search) {
		return
	}
	if q.backward && len(s.lines) >= 2*max(q.limit, 1) {
		s.lines = slices.Delete(s.lines, 0, len(s.lines)-q.limit) // only the last ones are needed
	}
	s.lines = append(s.lines, logEntry{
		Timestamp: at.UTC(), Level: level, Message: text,
		Fields: map[string]string{"process": string(s.reach.id), "stream": stream.String()},
	})
}
