package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Config says how to run a scheduler. The zero value of a field is its default.
type Config struct {
	Log  *events.Log  // required
	View *events.View // of Log, folded at least until Run returns; default: one of its own
	Slog *slog.Logger
	// Tick is how often leases are looked at when nothing else happens; default
	// one second. A request itself is acted on at once.
	Tick time.Duration
	// Fault is called at "picked", between a choice and its append; an error ends
	// Run there. For tests.
	Fault func(point string) error
}

const (
	// attempt bounds each step, so that a server that went away is noticed.
	attempt  = 5 * time.Second
	minPause = 2 * time.Millisecond
	maxPause = time.Second
)

func (cfg *Config) view(ctx context.Context) (*events.View, error) {
	if cfg.View != nil {
		return cfg.View, nil
	}
	return cfg.Log.OpenView(ctx)
}

// Run places what is requested until ctx ends, whose end is no error.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Slog == nil {
		cfg.Slog = slog.New(slog.DiscardHandler)
	}
	if cfg.Tick == 0 {
		cfg.Tick = time.Second
	}
	view, err := cfg.view(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	s := &scheduler{cfg: cfg, view: view, placed: make(map[string]uint64)}
	s.contact.MaxGap = 5 * cfg.Tick / 2
	return ignoreEnd(ctx, s.loop(ctx))
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = nil
	}
	return err
}

// scheduler belongs to the one goroutine of Run.
type scheduler struct {
	cfg     Config
	view    *events.View
	contact fleet.Contact
	placed  map[string]uint64 // revision of each host's placements, as far as known
}

// loop looks at what is requested whenever the view changed. Faults of the log
// are waited out.
func (s *scheduler) loop(ctx context.Context) error {
	changed, stop := s.view.Changes()
	defer stop()
	tick := time.NewTicker(s.cfg.Tick)
	defer tick.Stop()
	pause := minPause
	for {
		again, err := s.pass(ctx)
		switch {
		case isFault(err) || ctx.Err() != nil:
			return err
		case err != nil:
			s.cfg.Slog.Warn("placement will be tried again", "err", err)
			again = true
		case !again:
			pause = minPause
		}
		if again {
			// Whoever won goes on with what he knows; the loser leaves him some time.
			if !sleep(ctx, pause/2+rand.N(pause)) {
				return ctx.Err()
			}
			pause = min(2*pause, maxPause)
			continue
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass decides on everything that is requested, oldest first. again says that
// another scheduler wrote meanwhile, so that the choice must be made anew.
func (s *scheduler) pass(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	waiting := s.requested()
	if len(waiting) == 0 {
		return false, s.listen(ctx)
	}
	// First where each host's placements stand, then the view: so the view knows
	// all that were before, and the append refuses all that come after.
	if err := s.recall(ctx); err != nil {
		return false, err
	}
	if err := s.listen(ctx); err != nil {
		return false, err
	}
	rooms := s.rooms(s.view.Hosts())
	for i := range waiting {
		err := s.decide(ctx, &waiting[i], rooms)
		switch {
		case kind.Is(err, kind.Conflict):
			clear(s.placed)
			return true, nil
		case err != nil:
			clear(s.placed)
			return false, err
		}
	}
	return false, nil
}

// listen brings the view up to date, and notes that it is.
func (s *scheduler) listen(ctx context.Context) error {
	if err := s.view.Sync(ctx); err != nil {
		return err
	}
	s.contact.Heard(time.Now())
	return nil
}

func (s *scheduler) requested() []sandbox.State {
	states := s.view.Sandboxes(func(st *sandbox.State) bool { return st.Phase == sandbox.PhaseRequested })
	for i, j := 0, len(states)-1; i < j; i, j = i+1, j-1 {
		states[i], states[j] = states[j], states[i]
	}
	return states
}

// recall reads where the placements of the hosts stand, as far as it is not
// known from the last pass.
func (s *scheduler) recall(ctx context.Context) error {
	for _, h := range s.view.Hosts() {
		if _, ok := s.placed[h.Host]; ok || h.Gone {
			continue
		}
		rev, err := s.cfg.Log.Placements(ctx, h.Host)
		if err != nil {
			return err
		}
		s.placed[h.Host] = rev
	}
	return nil
}

// rooms counts what the hosts have left, in the view and not in the leases: a
// lease is as old as a heartbeat.
func (s *scheduler) rooms(hosts []fleet.Host) []room {
	used := make(map[string]int)
	s.view.Sandboxes(func(st *sandbox.State) bool {
		if st.Host != "" && !st.Over() {
			used[st.Host]++
		}
		return false
	})
	now := time.Now()
	rooms := make([]room, 0, len(hosts))
	for i := range hosts {
		h := &hosts[i]
		_, known := s.placed[h.Host]
		alive := known && h.Alive(now) // one that came this moment is the next pass's
		if !alive && s.contact.Silent(h) {
			continue
		}
		rooms = append(rooms, room{
			Host: h.Host, Epoch: h.Epoch, Drivers: h.Drivers, Capacity: int(h.Capacity),
			Used: used[h.Host], Draining: h.Draining, Doubtful: !alive,
		})
	}
	return rooms
}

// decide writes down what place says of one sandbox, and counts it.
func (s *scheduler) decide(ctx context.Context, st *sandbox.State, rooms []room) error {
	v := place(&st.Request, rooms)
	if s.cfg.Fault != nil {
		if err := s.cfg.Fault("picked"); err != nil {
			return &faultError{err}
		}
	}
	switch {
	case v.Host != nil:
		to := sandbox.Placed{Host: v.Host.Host, Epoch: v.Host.Epoch}
		rev, err := s.cfg.Log.PlaceSandbox(ctx, st, to, s.placed[to.Host])
		if err != nil {
			return err
		}
		s.placed[to.Host] = rev
		v.Host.Used++
		s.cfg.Slog.Debug("placed", "sandbox", st.ID, "host", to.Host)
	case v.Refused != nil:
		_, err := s.cfg.Log.AppendSandbox(ctx, st.Tenant, st.ID, st.Rev, st.Seq+1, *v.Refused)
		if err != nil {
			return err
		}
		s.cfg.Slog.Info("refused", "sandbox", st.ID, "reason", v.Refused.Reason)
	}
	return nil
}

// faultError is the cut of a test.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }
func (e *faultError) Unwrap() error { return e.err }

func isFault(err error) bool {
	var fault *faultError
	return errors.As(err, &fault)
}
