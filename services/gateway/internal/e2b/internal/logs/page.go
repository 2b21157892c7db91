package logs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

const (
	maxLogRead    = 32 << 20 // bytes of output that a page reads
	maxLogRecords = 256      // records that a page reads, except for running processes
	maxLogRunning = 1024     // processes running at the page's start
)

// logPage is one response: the lines from a depth on, until it is full or a read limit is
// reached. In the latter case its last line is a notice with the time at which the next
// page continues: without it, clients would take the page for the last one.
type logPage struct {
	q       *logQuery // with a limit one higher, to detect that there is more
	most    int       // maximum number of lines
	entries []logEntry
	edge    int64 // depth of the last line; deeper lines belong to the next page
	left    int   // bytes that may still be read
	cut     bool  // a read limit was reached: the page ends at edge
	lost    bool  // the page would end at its start: some lines are omitted
}

func newPage(q logQuery) *logPage {
	p := &logPage{q: &q, most: q.limit, edge: math.MaxInt64, left: maxLogRead}
	q.limit++
	return p
}

// reach is the range of a record's lines. Event times are clamped to the start and end of
// the process: clocks are adjusted, and a fork contains events from before its start.
type reach struct {
	id         process.ID
	begin, end time.Time // end is zero while it runs
	from       int64     // depth of its first line that can be on the page
	within     bool      // some lines come before the page
}

// reaches returns the records that may have lines on the page, ordered by their first line.
func (q *logQuery) reaches(all []process.Summary) []reach {
	var out []reach
	for i := range all {
		s := &all[i]
		from, to := q.depth(s.Started), q.depth(s.Ended)
		if q.backward {
			from, to = to, from
		}
		switch {
		case s.Ended.IsZero() && q.backward:
			from = math.MinInt64
		case s.Ended.IsZero():
			to = math.MaxInt64
		}
		if to >= q.start {
			out = append(out, reach{s.ID, s.Started, s.Ended, max(from, q.start), from < q.start})
		}
	}
	slices.SortStableFunc(out, func(a, b reach) int { return cmp.Compare(a.from, b.from) })
	return out
}

// when returns the time of an event.
func (r *reach) when(t time.Time) time.Time {
	switch {
	case t.Before(r.begin):
		return r.begin
	case !r.end.IsZero() && t.After(r.end):
		return r.end
	}
	return t
}

// fill reads one record after the other. Records with lines at the page's start share the
// read limit, so that each makes progress; of the others, the first one without any limit
// left ends the page.
func (p *logPage) fill(ctx context.Context, src *source, all []process.Summary) error {
	records := p.q.reaches(all)
	begun := 0
	for begun < len(records) && records[begun].from < p.q.start+2 {
		begun++
	}
	if begun > maxLogRunning {
		return kind.Newf(kind.Exhausted, "read logs", "",
			"%d processes ran at that time, logs are of %d at most: read the records of each", begun, maxLogRunning)
	}
	for i := range records {
		r := &records[i]
		if r.from > p.edge {
			return nil
		}
		if i >= begun && (i >= begun+maxLogRecords || p.left <= 0) {
			p.end(r.from)
			p.add(nil)
			return nil
		}
		s := &scan{page: p, src: src, reach: r, share: max(p.left/max(begun-i, 1), 1)}
		if err := s.read(ctx); err != nil {
			return err
		}
		p.left -= s.used
		p.add(s.out)
	}
	return nil
}

// end ends the page before a depth from which not everything was read. The page covers at
// least its first millisecond: cursors have that resolution.
func (p *logPage) end(before int64) {
	if before < p.q.start+2 {
		before, p.lost = p.q.start+2, true
	}
	p.edge, p.cut = min(p.edge, before-1), true
}

// add merges the lines of a record into the page, and drops those beyond it: the records
// together can have very many lines.
func (p *logPage) add(lines []logEntry) {
	all := slices.Concat(p.entries, lines)
	slices.SortStableFunc(all, func(a, b logEntry) int {
		if p.q.backward {
			a, b = b, a
		}
		return a.Timestamp.Compare(b.Timestamp)
	})
	n := min(len(all), p.q.limit)
	for n > 0 && p.q.depth(all[n-1].Timestamp) > p.edge {
		n--
	}
	p.entries = slices.Delete(all, n, len(all))
	if n == p.q.limit {
		p.edge = p.q.depth(all[n-1].Timestamp)
	}
}

// answer returns the page's lines. A full page needs no notice, unless all of it is within its
// first millisecond: the rest could not be requested.
func (p *logPage) answer() []logEntry {
	n := min(len(p.entries), p.most)
	if n > 1 && n < len(p.entries) && p.q.depth(p.entries[n].Timestamp) == p.q.start {
		p.edge, p.lost = p.q.start+1, true
	}
	switch {
	case p.lost:
		return append(p.entries[:min(n, p.most-1)], p.notice("there was more than a page has in two milliseconds, and some of it is left out; "))
	case p.cut && n < p.most:
		return append(p.entries, p.notice(""))
	case n == 0:
		return []logEntry{}
	}
	return p.entries[:n]
}

// notice returns the line at the end of a page that reached a read limit.
func (p *logPage) notice(also string) logEntry {
	at := p.q.at(p.edge).UTC()
	cursor := strconv.FormatInt(at.UnixMilli(), 10)
	return logEntry{
		Timestamp: at, Level: "warn", Fields: map[string]string{"cursor": cursor},
		Message: fmt.Sprintf("millrace: this page ends here: %sgo on with cursor %s", also, cursor),
	}
}
