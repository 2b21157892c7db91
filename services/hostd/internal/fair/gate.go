package fair

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	messageCost = 4 << 10   // cost of a message besides its bytes: the log's work for it
	allowance   = 4 << 20   // bytes per second and CPU that a quiet flow may store
	burst       = 1 << 20   // bytes that it may be ahead of that
	window      = 512 << 10 // bytes in flight of all loud flows
	quantum     = 64 << 10  // bytes of a turn
	slowRate    = allowance // bytes per second and CPU of all slowed-down flows; see doc.go
	slowFor     = time.Second
)

// Gate lets the messages of all flows of a host through. The zero value is ready to use;
// its methods and those of its flows are safe for concurrent use.
type Gate struct {
	mu        sync.Mutex
	round     []*Flow       // flows with waiting passes, in turn
	inFlight  int           // bytes in flight of loud flows
	free      time.Time     // when the next slowed-down message may pass
	timer     *time.Timer   // runs while every flow waits for free
	lastQuiet [2]quietStore // of two different quiet flows, the newest first
}

// quietStore is when a quiet flow last stored something.
type quietStore struct {
	flow *Flow
	at   time.Time
}

// Flow is one sandbox's part of a gate. Its gate's mu guards it.
type Flow struct {
	gate      *Gate
	ahead     int       // bytes above the allowance, at countedAt
	countedAt time.Time // last time it stored something or was let through
	loud      bool
	credit    int // bytes left of its turn
	waiting   []*Pass

	pending atomic.Int64 // bytes; see Hold
}

// Pass is the permission to store one message. The zero value is that of a quiet flow.
type Pass struct {
	flow  *Flow
	cost  int
	slow  bool // it counts against slowRate
	ready chan struct{}
}

// Flow returns a new flow.
func (g *Gate) Flow() *Flow { return &Flow{gate: g} }

// AddPending counts n more bytes that were received and have to be stored, or -n that were stored
// or dropped, and returns the total.
func (f *Flow) AddPending(n int) int { return int(f.pending.Add(int64(n))) }

// Enter waits until a message of that many bytes may be stored. The caller calls Leave when
// the message was stored or dropped. The error is ctx's.
func (f *Flow) Enter(ctx context.Context, size int) (*Pass, error) {
	g := f.gate
	g.mu.Lock()
	now := time.Now()
	cost := size + messageCost
	if f.count(now, cost); !f.loud {
		g.recordQuiet(f, now)
		g.mu.Unlock()
		return nil, nil
	}
	p := &Pass{flow: f, cost: cost, ready: make(chan struct{})}
	if f.waiting = append(f.waiting, p); len(f.waiting) == 1 {
		g.round = append(g.round, f)
	}
	g.grant(now)
	g.mu.Unlock()
	select {
	case <-p.ready:
		return p, nil
	case <-ctx.Done():
		p.cancel()
		return nil, ctx.Err()
	}
}

// count counts a message that is about to be stored and updates loud.
func (f *Flow) count(now time.Time, cost int) {
	if d := now.Sub(f.countedAt); d < time.Second {
		f.ahead -= int(d.Seconds() * float64(allowance*runtime.GOMAXPROCS(0)))
	} else {
		f.ahead = 0
	}
	f.countedAt = now
	if f.ahead <= 0 {
		f.ahead, f.loud = 0, false
	}
	f.ahead += cost
	if f.ahead > burst {
		f.ahead, f.loud = burst, true // older excess is forgiven
	}
}

// recordQuiet records that a quiet flow stores something.
func (g *Gate) recordQuiet(f *Flow, now time.Time) {
	if g.lastQuiet[0].flow != f {
		g.lastQuiet[1] = g.lastQuiet[0]
	}
	g.lastQuiet[0] = quietStore{f, now}
}

// quiet reports whether a flow other than f is quiet and stores something.
func (g *Gate) quiet(f *Flow, now time.Time) bool {
	h := g.lastQuiet[0]
	if h.flow == f {
		h = g.lastQuiet[1]
	}
	return h.flow != nil && now.Sub(h.at) < slowFor
}

// grant lets passes through in turn, as far as the window allows. A slowed-down flow that
// must wait lets others pass.
func (g *Gate) grant(now time.Time) {
	for len(g.round) > 0 && g.inFlight < window {
		i := slices.IndexFunc(g.round, func(f *Flow) bool { return !now.Before(g.free) || !g.quiet(f, now) })
		if i < 0 {
			g.scheduleGrant(g.free.Sub(now))
			return
		}
		f := g.round[i]
		p := f.waiting[0]
		if f.credit < p.cost {
			f.credit += quantum
			g.round = append(slices.Delete(g.round, i, i+1), f)
			continue
		}
		if f.waiting = f.waiting[1:]; len(f.waiting) == 0 {
			f.credit, g.round = p.cost, slices.Delete(g.round, i, i+1)
		}
		if p.slow = g.quiet(f, now); p.slow && g.free.Before(now) {
			g.free = now
		}
		f.countedAt = now // while it waited it could not store more
		p.charge(p.cost)
		close(p.ready)
	}
}

// charge counts bytes that pass.
func (p *Pass) charge(cost int) {
	p.flow.credit -= cost
	p.flow.gate.inFlight += cost
	if p.slow {
		p.flow.gate.free = p.flow.gate.free.Add(slowDuration(cost))
	}
}

// slowDuration returns how long that many bytes take at slowRate.
func slowDuration(cost int) time.Duration {
	return time.Duration(cost) * time.Second / time.Duration(slowRate*runtime.GOMAXPROCS(0))
}

// scheduleGrant schedules another call of grant.
func (g *Gate) scheduleGrant(wait time.Duration) {
	if g.timer != nil {
		return
	}
	g.timer = time.AfterFunc(wait, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timer = nil
		g.grant(time.Now())
	})
}

// SetSize sets the final size of the message, which may have grown while it waited.
func (p *Pass) SetSize(size int) {
	if p == nil {
		return
	}
	g := p.flow.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	more := size + messageCost - p.cost
	p.cost += more
	p.charge(more)
}

// Leave ends a pass.
func (p *Pass) Leave() {
	if p == nil {
		return
	}
	g := p.flow.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight -= p.cost
	g.grant(time.Now())
}

// cancel ends a pass that is not needed any more, even if it was granted meanwhile.
func (p *Pass) cancel() {
	f, g := p.flow, p.flow.gate
	g.mu.Lock()
	i := slices.Index(f.waiting, p)
	if i < 0 {
		g.mu.Unlock()
		p.Leave()
		return
	}
	defer g.mu.Unlock()
	if f.waiting = slices.Delete(f.waiting, i, i+1); len(f.waiting) == 0 {
		f.credit = 0
		g.round = slices.DeleteFunc(g.round, func(o *Flow) bool { return o == f })
	}
}
