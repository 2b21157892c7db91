package mux_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/mux"
)

const (
	testWindow = 64 << 10
	testBudget = 8 << 20
	testEach   = 16
	testMost   = 16 * testEach
)

// peer is an end under the test's control.
type peer struct {
	*mux.Mux
	t       *testing.T // granted and not sent
	next    uint32
	granted map[uint32]int // that it has not sent
	streams map[uint32]*mux.Stream
}

func newPeer(t *testing.T) *peer {
	p := &peer{t: t, next: 1, granted: map[uint32]int{}, streams: map[uint32]*mux.Stream{}}
	p.Mux = mux.New(mux.Config{
		Even: true, Window: testWindow, MaxStreams: testMost, MaxEach: testEach, Budget: testBudget,
		Wake: func() {}, Accept: func(s *mux.Stream) { s.Accept(); p.streams[p.next] = s },
	})
	return p
}

func (p *peer) send(t byte, id uint32, payload ...byte) {
	p.t.Helper()
	if err := p.Handle(t, append(binary.LittleEndian.AppendUint32(nil, id), payload...)); err != nil {
		p.t.Fatal(err)
	}
	for rest := p.Append(nil, 1<<20); len(rest) > 0; {
		ty, b, r, ok := mux.Split(rest)
		if !ok {
			p.t.Fatalf("%x is not a frame", rest)
		}
		if rest = r; ty == 129 {
			p.granted[binary.LittleEndian.Uint32(b)] += int(binary.LittleEndian.Uint32(b[4:]))
		}
	}
}

// open opens a stream and returns its id and its window.
func (p *peer) open(target string) (id uint32, window int) {
	p.t.Helper()
	id = p.next
	p.send(128, id, append([]byte{0, 0, 0, 0}, target...)...)
	p.next += 2
	return id, p.granted[id]
}

// fill sends all that the stream's window allows.
func (p *peer) fill(id uint32) {
	p.t.Helper()
	for n := p.granted[id]; n > 0; n = p.granted[id] {
		n = min(n, mux.MaxFrame/2)
		p.granted[id] -= n
		p.send(130, id, make([]byte, n)...)
	}
}

func (p *peer) reset(id uint32) { p.send(132, id, 0) }

func TestStreamsStayWithinTheBudget(t *testing.T) {
	for name, dests := range map[string]int{"of one destination": 1, "of some": testMost / testEach, "of a destination each": testMost} {
		p := newPeer(t)
		total, least := 0, testWindow
		for i := range testMost {
			_, window := p.open(fmt.Sprintf("%d:80", i%dests))
			total, least = total+window, min(least, window)
		}
		if limit := testBudget * testWindow / (testWindow + 64<<10); total > limit { // the rest is for data to be sent
			t.Errorf("%s: %d KiB may be received, want %d at most", name, total>>10, limit>>10)
		}
		if least < testBudget/2/testMost/2 {
			t.Errorf("%s: one stream has %d bytes", name, least)
		}
	}
}

// A stream that reads nothing and was opened while budget was short gets a larger send
// buffer later.
func TestASendOnlyStreamGrowsWhenBudgetIsFree(t *testing.T) {
	p := newPeer(t)
	var ids []uint32
	for range 4 * testEach {
		id, _ := p.open("s:80")
		ids = append(ids, id)
	}
	last := len(ids) - 1
	s := p.streams[ids[last]]
	for _, id := range ids[:last] {
		p.streams[id].Abort(nil)
		p.reset(id)
	}
	s.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if n, err := s.Write(make([]byte, 60<<10)); err != nil {
		t.Errorf("%d bytes fit into the send buffer, %v", n, err)
	}
}

// Data held by the streams of one destination does not count against another.
func TestADestinationCannotUseTheBudgetOfAnother(t *testing.T) {
	p := newPeer(t)
	for dest := range testMost/testEach - 1 {
		for i := range testEach {
			id, window := p.open(fmt.Sprintf("greedy%d:%d", dest, i))
			if i == 0 && window != testWindow {
				t.Errorf("the first stream to destination %d has a window of %d", dest, window)
			}
			p.fill(id)
		}
	}
	if _, window := p.open("modest:80"); window != testWindow {
		t.Errorf("the last destination has a window of %d, because others use its budget", window)
	}
}

// However a stream ends, its budget is free once its bytes are released, and not before.
func TestBudgetIsFreeOnceBytesAreReleased(t *testing.T) {
	for name, end := range map[string]func(s *mux.Stream){
		"read":         func(s *mux.Stream) { io.Copy(io.Discard, s) },
		"closed":       func(s *mux.Stream) { s.Close() },
		"closed why":   func(s *mux.Stream) { s.CloseWithError(io.ErrNoProgress) },
		"aborted":      func(s *mux.Stream) { s.Abort(nil) },
		"closed twice": func(s *mux.Stream) { s.Close(); s.Abort(nil); s.Close() },
	} {
		for _, cut := range []bool{true, false} {
			p := newPeer(t)
			var ids []uint32
			held := 0
			for range 2 * testMost {
				id, window := p.open("s:80")
				p.fill(id)
				if cut {
					p.reset(id)
				} else if p.send(131, id); len(ids) == testEach {
					break
				}
				ids, held = append(ids, id), held+window
			}
			if most := testBudget/16 + len(ids)*testBudget/2/testMost; held > most {
				t.Errorf("%s, cut %v: %d streams hold %d KiB, want %d at most", name, cut, len(ids), held>>10, most>>10)
			}
			next, window := p.open("s:80")
			if window > testWindow/2 {
				t.Errorf("%s, cut %v: the next has %d, although all budget is in use", name, cut, window)
			}
			for _, id := range ids {
				end(p.streams[id])
				p.streams[id].CloseWrite()
			}
			p.reset(next)
			if _, window := p.open("s:80"); window != testWindow {
				t.Errorf("%s, cut %v: the next has %d, although all budget is free", name, cut, window)
			}
		}
	}
}

func TestAStreamGrowsWhenBudgetIsFree(t *testing.T) {
	p := newPeer(t)
	var others []uint32
	for range testEach - 1 {
		id, _ := p.open("s:80")
		others = append(others, id)
	}
	id, was := p.open("s:80")
	if was >= testWindow/2 {
		t.Fatalf("the last has a window of %d", was)
	}
	for _, other := range others {
		p.reset(other)
	}
	p.fill(id)
	if _, err := io.ReadFull(p.streams[id], make([]byte, was)); err != nil {
		t.Fatal(err)
	}
	p.reset(others[0]) // its Append delivers the new window
	if now := p.granted[id]; now != testWindow {
		t.Errorf("its window was %d and is %d, want %d", was, now, testWindow)
	}
}

func TestStreamsMakeProgressWithASmallBudget(t *testing.T) {
	cfg := mux.Config{Accept: echo, Window: testWindow, MaxStreams: testEach, MaxOpen: testEach, MaxEach: testEach, Budget: 32 << 10}
	a, b := pair(t, cfg)
	want := bytes.Repeat([]byte("echo"), 50_000)
	var wg sync.WaitGroup
	for range 3 * testEach {
		wg.Go(func() {
			s := open(t, a, "s:80")
			defer s.Close()
			go func() {
				s.Write(want)
				s.CloseWrite()
			}()
			if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if a.Count() != 0 || b.Count() != 0 {
		t.Errorf("%d and %d streams are left", a.Count(), b.Count())
	}
}
