package core

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// Load is what a tenant's sandboxes did in a stretch of time.
type Load struct {
	Begin      time.Time
	Concurrent int     // the most that ran at once
	Rate       float64 // that began to run, a second
}

// Load gives a principal's load between two times in equal stretches, of whole
// seconds and at most most of them, not older than the call. It knows of sandboxes as
// long as the log does, and of each one's last 256 pauses. Those of builds do not count,
// and who goes on after a pause does not begin to run.
func (c *Core) Load(ctx context.Context, p Principal, since, until time.Time, most int) ([]Load, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	all := c.Sandboxes(p, func(s *sandbox.State) bool { return s.Request.Build == "" && !s.Started.IsZero() })
	step := max(time.Second, (until.Sub(since)/time.Duration(most) + time.Second - 1).Truncate(time.Second))
	return loads(all, since, until, step), nil
}

// turn is when one more runs, or one less.
type turn struct {
	at     time.Time
	by     int
	begins bool
}

func loads(all []sandbox.State, since, until time.Time, step time.Duration) []Load {
	var turns []turn
	for i := range all {
		s := &all[i]
		turns = append(turns, turn{s.Started, 1, true})
		for _, r := range s.Rests {
			turns = append(turns, turn{r.From, -1, false}, turn{r.To, 1, false})
		}
		switch {
		case !s.Still.IsZero():
			turns = append(turns, turn{s.Still, -1, false})
		case s.Over():
			turns = append(turns, turn{s.Ended, -1, false})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return a.at.Compare(b.at) })
	running, next := 0, 0
	for ; next < len(turns) && turns[next].at.Before(since); next++ {
		running += turns[next].by
	}
	var out []Load
	for begin := since; begin.Before(until); begin = begin.Add(step) {
		l, began := Load{Begin: begin, Concurrent: running}, 0
		for ; next < len(turns) && turns[next].at.Before(begin.Add(step)); next++ {
			running += turns[next].by
			l.Concurrent = max(l.Concurrent, running)
			if turns[next].begins {
				began++
			}
		}
		l.Rate = float64(began) / step.Seconds()
		out = append(out, l)
	}
	return out
}
