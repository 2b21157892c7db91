package output

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// TestSpool: in any order in which events are pushed, sent, acked, resumed, written to disk and
// read back, a spool returns each event in order and counts its events.
func TestSpool(t *testing.T) {
	for seed := range uint64(200) {
		r := newSpoolRun(seed)
		for range 2000 {
			if err := r.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// spoolRun is a spool, the other end of its connection, and its disk.
type spoolRun struct {
	rnd        *rand.Rand
	q          spool
	got, acked uint64 // by the other end
	file       map[int64][]entry
	nextAt     int64
}

func newSpoolRun(seed uint64) *spoolRun {
	return &spoolRun{rnd: rand.New(rand.NewPCG(seed, 0)), q: spool{last: 1, resumed: true}, got: 1, acked: 1, file: map[int64][]entry{}}
}

func (r *spoolRun) step() error {
	q := &r.q
	switch r.rnd.IntN(6) {
	case 0, 1:
		q.push(entry{stream: 1, data: make([]byte, r.rnd.IntN(1000))})
	case 2:
		for q.sendable() && r.rnd.IntN(4) > 0 {
			r.load()
			e := q.send()
			if r.got++; e.seq != r.got {
				return fmt.Errorf("sent %d, want %d", e.seq, r.got)
			}
		}
	case 3:
		if r.acked < r.got {
			r.acked += uint64(r.rnd.IntN(int(r.got-r.acked))) + 1
			q.drop(r.acked, func([]byte) {})
		}
	case 4: // a new connection, whose peer may have missed the last events
		r.got = r.acked + uint64(r.rnd.IntN(int(r.got-r.acked)+1))
		q.rewind()
		if !q.resume(r.got) {
			return fmt.Errorf("cannot resume after %d of %d to %d", r.got, q.first(), q.last)
		}
	case 5:
		if loose := q.unsent(); len(loose) > 0 && r.rnd.IntN(4) == 0 {
			n := 1 + r.rnd.IntN(len(loose))
			r.file[r.nextAt] = slices.Clone(loose[:n])
			q.movedToDisk(n, extent{offset: r.nextAt}, func([]byte) {})
			r.nextAt++
		}
	}
	return r.check()
}

func (r *spoolRun) load() {
	if r.q.nextOnDisk() {
		at := r.q.extents[0].offset
		r.q.loaded(r.file[at])
		delete(r.file, at)
	}
}

func (r *spoolRun) check() error {
	q := &r.q
	flight, bytes, loose := 0, 0, 0
	for i := q.head; i < q.next; i++ {
		flight += q.entries[i].flight()
	}
	for _, e := range slices.Concat(q.entries[q.head:], q.newer) {
		bytes += e.cost()
		if !e.frozen {
			loose += e.cost()
		}
	}
	if q.flight != flight || q.bytes != bytes || q.unsentBytes != loose || q.first() != r.acked+1 || q.sent() != r.got || len(q.extents) != len(r.file) {
		return fmt.Errorf("flight %d want %d, bytes %d want %d, unsent %d want %d, first %d want %d, sent %d want %d, extents %d want %d",
			q.flight, flight, q.bytes, bytes, q.unsentBytes, loose, q.first(), r.acked+1, q.sent(), r.got, len(q.extents), len(r.file))
	}
	return nil
}

func TestSpoolRejectsUnknownPositions(t *testing.T) {
	q := spool{last: 1}
	for range 10 {
		q.push(entry{})
	}
	q.resumed = true
	for range 5 {
		q.send()
	}
	q.drop(4, func([]byte) {})
	for _, tt := range []struct {
		after uint64
		ok    bool
	}{{2, false}, {3, false}, {4, true}, {6, true}, {11, true}, {12, false}, {1 << 63, false}, {1<<64 - 1, false}} {
		q.rewind()
		if ok := q.resume(tt.after); ok != tt.ok {
			t.Errorf("resume after %d: %v", tt.after, ok)
		}
	}
}

func TestSpoolWindow(t *testing.T) {
	q := spool{last: 1, resumed: true}
	for range 100 {
		q.push(entry{stream: 1, data: make([]byte, blockSize)})
	}
	n := 0
	for q.sendable() {
		n += q.send().flight()
	}
	if n < wire.WindowProcess || n > wire.WindowProcess+wire.MaxData {
		t.Errorf("%d bytes in flight", n)
	}
}
