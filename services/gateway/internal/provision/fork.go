package provision

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

const forksAtOnce = 16

// Fork is a sandbox that ForkSandbox made, or the error that prevented it.
type Fork struct {
	State sandbox.State
	Err   error
}

// ForkSandbox creates sandboxes from the current files of another, and from its processes if
// its driver can keep them, which memory reports. It fails as a whole only if no snapshot of
// that sandbox can be made.
func (pr *Provisioner) ForkSandbox(ctx context.Context, p core.Principal, id sandbox.ID, count int, lifetime time.Duration) (forks []Fork, memory bool, err error) {
	snap, err := pr.snapshots.Take(ctx, p, id, command.TakeSnapshot{ID: sandbox.NewSnapshotID(), Internal: true})
	if err != nil {
		return nil, false, err
	}
	// The host keeps the snapshot for as long as a fork runs.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pr.core.CallTimeout)
		defer cancel()
		if err := pr.snapshots.Drop(ctx, snap); err != nil {
			pr.core.Slog.Warn("delete snapshot of fork failed, left to the reaper", "snapshot", snap.ID, "err", err)
		}
	}()
	st, err := pr.lifecycle.Sandbox(p, id)
	if err != nil {
		return nil, false, err
	}
	req := snapshots.From(&snap, st.Request)
	if req.Env, err = pr.lifecycle.OwnEnv(&st); err != nil {
		return nil, false, err
	}
	if req.Redact, err = st.Request.Patterns(pr.core.Sealer, st.Tenant, string(st.ID)); err != nil {
		return nil, false, core.LogError("fork", string(id), err)
	}
	req.Lifetime = lifetime
	req.Network, req.AllowInternet = st.Network, st.Network.Internet // as it is now
	forks = make([]Fork, count)
	var wg sync.WaitGroup
	slots := make(chan struct{}, forksAtOnce)
	for i := range forks {
		wg.Go(func() {
			slots <- struct{}{}
			forks[i].Err = recovery.Do(pr.core.Slog, "fork", func() (err error) {
				forks[i].State, err = pr.CreateSandbox(ctx, p, req)
				return err
			})
			<-slots
		})
	}
	wg.Wait()
	return forks, snap.Memory, nil
}
