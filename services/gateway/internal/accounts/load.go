package accounts

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Load is the activity of a tenant's sandboxes during an interval.
type Load struct {
	Begin      time.Time
	Concurrent int     // maximum number that ran at the same time
	Rate       float64 // starts per second
}

// Load returns a principal's load between two times, not older than the call, in at most
// most equal intervals of whole seconds. It covers the sandboxes that the log still has, and
// each one's last 256 pauses. Sandboxes of builds do not count, and a resume does not count
// as a start.
func (a *Accounts) Load(ctx context.Context, p core.Principal, since, until time.Time, most int) ([]Load, error) {
	if err := a.core.Sync(ctx); err != nil {
		return nil, err
	}
	all := a.core.View.Sandboxes(func(s *sandbox.State) bool { return p.MayAccess(s) && s.Request.Build == "" && !s.Started.IsZero() })
	step := max(time.Second, (until.Sub(since)/time.Duration(most) + time.Second - 1).Truncate(time.Second))
	return loads(all, since, until, step), nil
}

// loadChange is a change of the number of running sandboxes.
type loadChange struct {
	at    time.Time
	delta int
	start bool
}

func loads(all []sandbox.State, since, until time.Time, step time.Duration) []Load {
	var turns []loadChange
	for i := range all {
		s := &all[i]
		turns = append(turns, loadChange{s.Started, 1, true})
		for _, r := range s.Pauses {
			turns = append(turns, loadChange{r.From, -1, false}, loadChange{r.To, 1, false})
		}
		switch {
		case !s.PausedSince.IsZero():
			turns = append(turns, loadChange{s.PausedSince, -1, false})
		case s.Over():
			turns = append(turns, loadChange{s.Ended, -1, false})
		}
	}
	slices.SortFunc(turns, func(a, b loadChange) int { return a.at.Compare(b.at) })
	running, next := 0, 0
	for ; next < len(turns) && turns[next].at.Before(since); next++ {
		running += turns[next].delta
	}
	var out []Load
	for begin := since; begin.Before(until); begin = begin.Add(step) {
		l, began := Load{Begin: begin, Concurrent: running}, 0
		for ; next < len(turns) && turns[next].at.Before(begin.Add(step)); next++ {
			running += turns[next].delta
			l.Concurrent = max(l.Concurrent, running)
			if turns[next].start {
				began++
			}
		}
		l.Rate = float64(began) / step.Seconds()
		out = append(out, l)
	}
	return out
}
