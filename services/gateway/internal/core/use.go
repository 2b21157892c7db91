package core

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Use is what a sandbox used, oldest first, and how much it may.
type Use struct {
	State   sandbox.State
	CPUs    float64 // that it may use; those of its host where it has no limit
	Memory  uint64  // bytes; likewise
	Disk    uint64  // bytes; likewise
	Samples []events.Sample
}

// lead is how much earlier than what is asked for samples are read, and how old
// the newest may be: more than a host leaves between two.
const lead = time.Minute

// Use gives what was recorded of a sandbox's use between two moments; the zero
// time of until is now, of since the first that is kept. The sample before since
// is given too, if it is kept: what a CPU did is told by two. It works as long as
// the samples are kept, also when the sandbox is gone.
func (c *Core) Use(ctx context.Context, p Principal, id sandbox.ID, since, until time.Time) (Use, error) {
	st, err := c.find(ctx, p, id)
	if err != nil {
		return Use{}, err
	}
	u := c.limitsOf(st)
	if st.Host == "" || st.Started.IsZero() {
		return u, nil
	}
	from := since
	if !since.IsZero() {
		from = since.Add(-lead)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	all, err := c.log.Samples(ctx, st.Host, id, from)
	if err != nil {
		return Use{}, logError("read use", string(id), err)
	}
	if len(all) > 0 && all[0].Time.Sub(st.Started) < lead {
		all = append([]events.Sample{{Time: st.Started}}, all...) // it had used nothing yet
	}
	for i, s := range all {
		next := i+1 < len(all) && !all[i+1].Time.Before(since)
		if (next || !s.Time.Before(since)) && (until.IsZero() || !s.Time.After(until)) {
			u.Samples = append(u.Samples, s)
		}
	}
	return u, nil
}

// LastUse gives the newest samples of each sandbox that the principal has, leaving
// out those of which there are none.
func (c *Core) LastUse(ctx context.Context, p Principal, ids []sandbox.ID) ([]Use, error) {
	var out []Use
	for _, id := range ids {
		u, err := c.Recent(ctx, p, id)
		switch {
		case kind.Is(err, kind.NotFound):
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// Recent is Use of the last minute.
func (c *Core) Recent(ctx context.Context, p Principal, id sandbox.ID) (Use, error) {
	return c.Use(ctx, p, id, time.Now().Add(-lead), time.Time{})
}

func (c *Core) limitsOf(st sandbox.State) Use {
	u := Use{
		State: st, CPUs: float64(st.Request.CPUMilli) / 1000,
		Memory: uint64(st.Request.MemoryMiB) << 20, Disk: uint64(st.Request.DiskMiB) << 20,
	}
	if h, ok := c.view.Host(st.Host); ok {
		if u.CPUs == 0 {
			u.CPUs = float64(h.CPUs)
		}
		if u.Memory == 0 {
			u.Memory = h.MemoryTotal
		}
		if u.Disk == 0 {
			u.Disk = h.DiskTotal
		}
	}
	return u
}
