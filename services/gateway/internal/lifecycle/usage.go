package lifecycle

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Usage is the resource usage of a sandbox, oldest sample first, and its limits.
type Usage struct {
	State   sandbox.State
	CPUs    float64 // limit; the host's total if the sandbox has none
	Memory  uint64  // bytes; likewise
	Disk    uint64  // bytes; likewise
	Samples []catalog.Sample
}

// sampleMargin is how far before the requested time samples are read, and the maximum age of the
// newest: more than a host's interval between two samples.
const sampleMargin = time.Minute

// Usage returns a sandbox's recorded usage between two times; a zero until is now, a zero since
// is the first sample kept. The sample before since is included if it is kept: CPU usage is
// the difference of two samples. It works as long as samples are kept, also when the sandbox
// has ended.
func (l *Lifecycle) Usage(ctx context.Context, p core.Principal, id sandbox.ID, since, until time.Time) (Usage, error) {
	st, err := l.FindSandbox(ctx, p, id)
	if err != nil {
		return Usage{}, err
	}
	u := l.limitsOf(st)
	if st.Host == "" || st.Started.IsZero() {
		return u, nil
	}
	from := since
	if !since.IsZero() {
		from = since.Add(-sampleMargin)
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.CallTimeout)
	defer cancel()
	all, err := l.core.Log.Samples(ctx, st.Host, id, from)
	if err != nil {
		return Usage{}, core.LogError("read use", string(id), err)
	}
	if len(all) > 0 && all[0].Time.Sub(st.Started) < sampleMargin {
		all = append([]catalog.Sample{{Time: st.Started}}, all...) // usage was zero at the start
	}
	for i, s := range all {
		next := i+1 < len(all) && !all[i+1].Time.Before(since)
		if (next || !s.Time.Before(since)) && (until.IsZero() || !s.Time.After(until)) {
			u.Samples = append(u.Samples, s)
		}
	}
	return u, nil
}

// LastUsages returns the newest samples of each of the sandboxes, leaving out those that the
// principal does not have.
func (l *Lifecycle) LastUsages(ctx context.Context, p core.Principal, ids []sandbox.ID) ([]Usage, error) {
	var out []Usage
	for _, id := range ids {
		u, err := l.RecentUsage(ctx, p, id)
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

// RecentUsage returns the usage of the last minute.
func (l *Lifecycle) RecentUsage(ctx context.Context, p core.Principal, id sandbox.ID) (Usage, error) {
	return l.Usage(ctx, p, id, time.Now().Add(-sampleMargin), time.Time{})
}

func (l *Lifecycle) limitsOf(st sandbox.State) Usage {
	u := Usage{
		State: st, CPUs: float64(st.Request.CPUMilli) / 1000,
		Memory: uint64(st.Request.MemoryMiB) << 20, Disk: uint64(st.Request.DiskMiB) << 20,
	}
	if h, ok := l.core.View.Host(st.Host); ok {
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
