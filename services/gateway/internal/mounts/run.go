package mounts

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	endsRest      = 20 * time.Millisecond
	lookInterval  = 3 * time.Second // between two lists of a sandbox's files
	lookShare     = 50              // minimum time between them, as a multiple of the duration of one
	recordTimeout = 10 * time.Second
	leaveTimeout  = 5 * time.Second // of a gateway that stops
	maxBytes      = 16 << 10        // of the paths in an event
)

// Run synchronizes the mounted sandboxes until ctx ends, and then once more.
func (ms *Mounts) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { ms.ends(ctx, &work) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			work.Wait() // its mounts are locked
			ms.leave(context.WithoutCancel(ctx))
			return
		case now := <-tick.C:
			ms.adopt()
			ms.each(func(m *mount, st *sandbox.State) { ms.keep(ctx, m, st, now) })
		}
	}
}

// ends stores what has changed in sandboxes whose end waits for that, until ctx ends.
func (ms *Mounts) ends(ctx context.Context, work *sync.WaitGroup) {
	changed, stop := ms.cfg.View.Changes()
	defer stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, m := range ms.list() {
			st, ok := ms.cfg.View.Sandbox(m.id)
			if !ok || !st.AwaitsUnmount() || !ms.mine(&st) || !m.mu.TryLock() {
				continue
			}
			work.Go(func() {
				defer m.mu.Unlock()
				ms.flush(ctx, m, false)
				if ctx.Err() == nil { // otherwise leave stores the rest
					ms.unmount(ctx, m)
				}
			})
		}
		if !waiting.Sleep(ctx, endsRest) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// adopt takes over the sandboxes whose gateway has ended.
func (ms *Mounts) adopt() {
	for _, st := range ms.cfg.View.Sandboxes(func(s *sandbox.State) bool {
		return (s.IsRunning() || s.AwaitsUnmount()) && ms.free(&s.Mount)
	}) {
		ms.get(&st)
	}
}

// free reports whether a sandbox had a gateway, and that has ended.
func (ms *Mounts) free(m *sandbox.WorkspaceMount) bool {
	return !m.Since.IsZero() && m.Gateway == "" || ms.gone(m)
}

// gone reports whether the gateway of a mount has ended.
func (ms *Mounts) gone(m *sandbox.WorkspaceMount) bool {
	return m.Gateway != "" && ms.cfg.Gateways.Gone(m.Gateway, m.Since)
}

// mine reports whether this gateway has to store what changes in a sandbox.
func (ms *Mounts) mine(st *sandbox.State) bool {
	return st.Mount.Gateway == ms.cfg.Gateways.ID() || ms.gone(&st.Mount)
}

// list returns all mounts.
func (ms *Mounts) list() []*mount {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return slices.Collect(maps.Values(ms.all))
}

// each calls do for every mount that is not in use, with its lock.
func (ms *Mounts) each(do func(m *mount, st *sandbox.State)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, m := range ms.list() {
		st, ok := ms.cfg.View.Sandbox(m.id)
		if !ok { // it ended so long ago that no view has it
			ms.drop(m)
			continue
		}
		if !m.mu.TryLock() {
			continue
		}
		g.Go(func() error {
			defer m.mu.Unlock()
			do(m, &st)
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no function returns an error
}

// keep does what is due for a sandbox.
func (ms *Mounts) keep(ctx context.Context, m *mount, st *sandbox.State, now time.Time) {
	switch {
	case st.Over():
		ms.forget(ctx, m, st)
	case !st.IsRunning():
	case ms.free(&st.Mount):
		if err := ms.claim(ctx, m); err != nil {
			ms.warn("take over workspace failed", m, err)
			return
		}
		ms.flush(ctx, m, true)
	case !m.mounted:
	case !now.Before(m.due) || !m.warned && st.Warned:
		m.warned = st.Warned
		ms.flush(ctx, m, true)
	case !now.Before(m.look):
		ms.note(ctx, m)
	}
}

// note lists the files of a sandbox, and keeps which ones have changed.
func (ms *Mounts) note(ctx context.Context, m *mount) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	begun := time.Now()
	local, _, err := ms.local(ctx, m)
	m.look = time.Now().Add(max(lookInterval, lookShare*time.Since(begun)))
	if err == nil {
		m.changes(local)
	}
}

// changes sets which files of the sandbox have changed since the last synchronization.
func (m *mount) changes(local map[workspace.Path]state) {
	clear(m.changed)
	for name, l := range local {
		if was, known := m.base[name]; !known || !l.equal(was.local) {
			m.changed[name] = struct{}{}
		}
	}
	for name := range m.base {
		if _, ok := local[name]; !ok {
			m.changed[name] = struct{}{}
		}
	}
}

// claim stores that this gateway stores what changes in a running sandbox. It stores nothing while a gateway that
// has not ended does that: of several that mount a sandbox concurrently, the first one keeps it.
func (ms *Mounts) claim(ctx context.Context, m *mount) error {
	_, err := ms.cfg.View.ChangeSandbox(ctx, m.id, func(s sandbox.State) ([]sandbox.Body, error) {
		switch {
		case !s.IsRunning():
			return nil, core.NoSandbox(m.id)
		case s.Mount.Gateway != "" && !ms.gone(&s.Mount):
			return nil, nil
		}
		return []sandbox.Body{sandbox.Mounted{Gateway: ms.cfg.Gateways.ID()}}, nil
	})
	return err
}

// unmount stores that this gateway does not store any more what changes in a sandbox, and what it has not stored.
//
// An error is logged. It returns false if a later call may succeed.
func (ms *Mounts) unmount(ctx context.Context, m *mount) bool {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	b := m.unstored()
	_, err := ms.cfg.View.ChangeSandbox(ctx, m.id, func(s sandbox.State) ([]sandbox.Body, error) {
		if !ms.mine(&s) {
			return nil, nil
		}
		return []sandbox.Body{b}, nil
	})
	if err != nil {
		ms.warn("unmount workspace failed", m, err)
	}
	return !kind.Is(err, kind.Unavailable) && !kind.Is(err, kind.Deadline)
}

// unstored returns the event that names what is not stored.
func (m *mount) unstored() sandbox.Unmounted {
	all := maps.Clone(m.changed)
	maps.Copy(all, m.refused)
	b := sandbox.Unmounted{Count: uint32(len(all)), Stored: m.stored}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if size += len(name); len(b.Unstored) == sandbox.MaxUnstored || size > maxBytes {
			break
		}
		b.Unstored = append(b.Unstored, string(name))
	}
	return b
}

// leave stores what has changed, before this gateway ends.
func (ms *Mounts) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	ms.each(func(m *mount, st *sandbox.State) {
		if st.Mount.Gateway != ms.cfg.Gateways.ID() {
			return
		}
		if st.IsRunning() || st.AwaitsUnmount() {
			ms.flush(ctx, m, false)
		}
		ms.unmount(ctx, m)
	})
}

// forget removes the mount of a sandbox that has ended, and stores what was lost with it. When another gateway has
// to store that, it keeps the mount until that is done, because the other one may end before.
func (ms *Mounts) forget(ctx context.Context, m *mount, st *sandbox.State) {
	if st.Mount.Gateway != "" && st.Phase != sandbox.PhaseFailed {
		if !ms.mine(st) || !ms.unmount(ctx, m) {
			return
		}
	}
	ms.drop(m)
}

// drop removes a mount.
func (ms *Mounts) drop(m *mount) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.all, m.id)
}

// warn logs an error about a sandbox that has not ended.
func (ms *Mounts) warn(what string, m *mount, err error) {
	if !kind.Is(err, kind.NotFound) {
		ms.cfg.Slog.Warn(what, "sandbox", m.id, "app", m.of.App, "set", m.of.Set, "err", err)
	}
}
