package shim

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Whatever is pushed, sent, acked and resumed in whatever order, a spool gives
// each event in its place and counts what is in flight.
func TestSpool(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		q := spool{last: 1}
		got, acked := uint64(1), uint64(1) // by the other end
		q.resumed = true
		for range 2000 {
			switch rnd.IntN(5) {
			case 0, 1:
				q.push(entry{stream: 1, data: make([]byte, rnd.IntN(1000))})
			case 2:
				for q.sendable() && rnd.IntN(4) > 0 {
					e := q.send()
					if got++; e.seq != got {
						t.Fatalf("seed %d: sent %d, want %d", seed, e.seq, got)
					}
				}
			case 3:
				if acked < got {
					acked += uint64(rnd.IntN(int(got-acked))) + 1
					q.drop(acked, func([]byte) {})
				}
			case 4: // a new connection to one that may have missed the last ones
				got = acked + uint64(rnd.IntN(int(got-acked)+1))
				q.rewind()
				if !q.resume(got) {
					t.Fatalf("seed %d: cannot resume after %d of %d to %d", seed, got, q.first(), q.last)
				}
			}
			flight := 0
			for i := q.head; i < q.next; i++ {
				flight += q.entries[i].flight()
			}
			if q.flight != flight || q.first() != acked+1 || q.sent() != got {
				t.Fatalf("seed %d: flight %d want %d, first %d want %d, sent %d want %d", seed, q.flight, flight, q.first(), acked+1, q.sent(), got)
			}
		}
	}
}

func TestSpoolRefusesPlacesItDoesNotHave(t *testing.T) {
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
