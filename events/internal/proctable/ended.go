package proctable

import (
	"iter"
	"time"

	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/process"
)

// Ended is a process that ended, and the stream sequence of its entry.
type Ended struct {
	process.Summary
	Rev uint64
}

// EndedAfter returns the first processes whose entries with their ends have a stream sequence after rev,
// at most n, in that order. The entry of a process that ended does not change, so that a reader that
// continues after the last one gets each process once.
func (t *Table) EndedAfter(rev uint64, n int) []Ended {
	t.progress.Lock()
	items := t.finished.After(nil, rev, n)
	t.progress.Unlock()
	out := make([]Ended, len(items))
	var d finished.Decoder
	for i := range items {
		d.Decode(&items[i], &out[i].Summary)
		out[i].Rev = items[i].Rev()
	}
	return out
}

// Span selects processes that ended: those whose entries have a stream sequence after After, and those that
// ended at Since or later. A zero Since selects none, and the zero Span all.
type Span struct {
	After uint64
	Since time.Time // by the clock of the host
	UpTo  uint64    // the last stream sequence of both; 0: no limit
}

func (s *Span) has(rev uint64, ended time.Time) bool {
	if s.UpTo > 0 && rev > s.UpTo {
		return false
	}
	return rev > s.After || !s.Since.IsZero() && !ended.Before(s.Since)
}

// EndedOn returns the processes of a span that ended on a host, in batches. The cost of others is small.
func (t *Table) EndedOn(host string, span Span) iter.Seq[[]process.Summary] {
	return func(yield func([]process.Summary) bool) {
		var d finished.Decoder
		var items []finished.Item
		for rev := uint64(0); ; {
			t.progress.Lock()
			items, rev = t.finished.Ended(items[:0], rev, span.has)
			t.progress.Unlock()
			var batch []process.Summary
			for i := range items {
				if s := d.Summary(&items[i]); s.Host == host {
					batch = append(batch, s)
				}
			}
			if len(batch) > 0 && !yield(batch) || rev == 0 {
				return
			}
		}
	}
}

// Rev returns the stream sequence up to which the table has the catalog.
func (t *Table) Rev() uint64 { return t.progress.Rev(streams.Catalog) }
