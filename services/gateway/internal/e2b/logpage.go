package e2b

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
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	maxLogRead    = 32 << 20 // bytes of output that a page looks at
	maxLogRecords = 256      // records that a page looks at, but for those
	maxLogRunning = 1024     // of processes that ran when it begins
)

// source is where the records of a principal are.
type source struct {
	core *core.Core
	p    core.Principal
}

// logPage is one answer: the lines from a depth on, until there are enough or enough was
// looked at. Then it ends in a line that says so, by whose time the next page goes on:
// an end that is not said would be taken for the end of the logs.
type logPage struct {
	q       *logQuery // with a limit one higher, to know whether there is more
	most    int       // lines on it
	entries []logEntry
	edge    int64 // the depth of the last line; what is deeper belongs to the next page
	left    int   // bytes to look at
	cut     bool  // so much was looked at that the page ends at edge
	lost    bool  // it would end where it begins: some lines in between are left out
}

func newPage(q logQuery) *logPage {
	p := &logPage{q: &q, most: q.limit, edge: math.MaxInt64, left: maxLogRead}
	q.limit++
	return p
}

// reach is where the lines of a record lie. What its events say of the time is taken to
// be between the start and the end of the process: clocks are set, and a fork has what
// was written before it.
type reach struct {
	id         process.ID
	begin, end time.Time // end is zero: it runs
	from       int64     // the depth of its first line that can be on the page
	within     bool      // some lines come before the page
}

// reaches gives the records that have lines on the way, those first whose lines come
// first.
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

// when is the time of an event.
func (r *reach) when(t time.Time) time.Time {
	switch {
	case t.Before(r.begin):
		return r.begin
	case !r.end.IsZero() && t.After(r.end):
		return r.end
	}
	return t
}

// fill looks at one record after the other. Those that have lines where the page begins
// share what may be looked at, so that each comes further; of the others, the first that
// there is nothing left for ends the page.
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

// end has the page end before a depth, from which on not all was looked at. At the least
// it comes to the millisecond after its first: cursors are no finer.
func (p *logPage) end(before int64) {
	if before < p.q.start+2 {
		before, p.lost = p.q.start+2, true
	}
	p.edge, p.cut = min(p.edge, before-1), true
}

// add takes over a record's lines, as far as they are on the page: all of the records
// together can have very many.
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

// answer gives the page's lines. A full one needs no word on where it ends, unless all of
// it is of the millisecond that it was to begin with: there is no way to ask for the rest.
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

// notice is the line at the end of a page that was cut.
func (p *logPage) notice(also string) logEntry {
	at := p.q.at(p.edge).UTC()
	cursor := strconv.FormatInt(at.UnixMilli(), 10)
	return logEntry{
		Timestamp: at, Level: "warn", Fields: map[string]string{"cursor": cursor},
		Message: fmt.Sprintf("millrace: this page ends here: %sgo on with cursor %s", also, cursor),
	}
}
