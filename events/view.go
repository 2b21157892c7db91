package events

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// View is the log's sandboxes, processes, hosts and keys, folded into memory and kept up to
// date. Its methods may be called concurrently. Ended sandboxes and processes are kept as
// long as output is.
type View struct {
	l *Log

	mu           sync.Mutex
	applied      map[string]uint64 // stream -> stream sequence
	sandboxes    map[sandbox.ID]sandbox.State
	processes    map[process.ID]*entry
	interner     interner // of values in processes
	members      map[sandbox.ID]*members
	totals       totals
	hosts        map[string]fleet.Host
	keys         map[[32]byte]Key
	revoked      map[string]uint64 // tenant -> stream sequence of the last revocation
	templates    map[templateKey]Template
	published    map[nameKey]bool
	signing      []identity.Stored // by number
	snapshots    map[sandbox.SnapshotID]sandbox.Snapshot
	deleted      uint64                    // number of deleted snapshots, including dropped ones
	volumes      map[string]sandbox.Volume // by subject
	secrets      map[string]Secret         // likewise
	hooks        map[string]*hook          // by the subject of the webhook
	droppedHooks HookTotals                // of webhooks that the view has dropped
	lifecycle    lifecycles
	changed      chan struct{} // closed and replaced at every change
	err          error         // why the view is no longer kept up to date
	builds       map[build.ID]Build
	watchers     map[chan struct{}]struct{}
	nextBarrier  *syncBarrier // requested but not begun; nil: none requested

	barrierMu sync.Mutex // held by the running barrier; taken before mu

	swept struct{ sandboxes, snapshots, volumes, secrets, hooks swept }
}

// entry is a process in the catalogue.
type entry struct {
	process.Summary
	rev uint64
}

// members holds a sandbox's processes, oldest first.
type members struct {
	all   []process.ID
	byPID map[uint32]process.ID // the newest process with that pid
}

// folds lists the streams from which a view is folded, the function that applies a message,
// and whether Changes reports it.
var folds = []struct {
	stream string
	apply  func(*View, stored) error
	notify bool
}{
	{streamSandboxes, (*View).applySandbox, true},
	{streamCatalogue, (*View).applySummary, false},
	{streamHosts, (*View).applyLease, true},
	{streamAccounts, (*View).applyAccount, true},
	{streamSnapshots, (*View).applySnapshot, true},
	{streamVolumes, (*View).applyVolume, true},
	{streamBuilds, (*View).applyBuild, false},
	{streamVault, (*View).applySecret, false},
	{streamHooks, (*View).applyHook, false},
}

// sweepEvery is how often old entries are dropped.
const sweepEvery = time.Minute

// OpenView folds the log and returns when it has caught up. The view is kept up to date
// until ctx ends.
func (l *Log) OpenView(ctx context.Context) (*View, error) {
	v := &View{
		l:         l,
		applied:   make(map[string]uint64),
		sandboxes: make(map[sandbox.ID]sandbox.State),
		processes: make(map[process.ID]*entry),
		members:   make(map[sandbox.ID]*members),
		totals:    newTotals(),
		hosts:     make(map[string]fleet.Host),
		keys:      make(map[[32]byte]Key),
		revoked:   make(map[string]uint64),
		templates: make(map[templateKey]Template),
		published: make(map[nameKey]bool),
		snapshots: make(map[sandbox.SnapshotID]sandbox.Snapshot),
		volumes:   make(map[string]sandbox.Volume),
		secrets:   make(map[string]Secret),
		hooks:     make(map[string]*hook),
		lifecycle: lifecycles{of: make(map[string][]mark)},
		builds:    make(map[build.ID]Build),
		changed:   make(chan struct{}),
		watchers:  make(map[chan struct{}]struct{}),
	}
	for _, f := range folds {
		feed, err := l.follow(f.stream, ">", 0)
		if err != nil {
			return nil, unavailable("open view", f.stream, err)
		}
		go v.fold(ctx, feed, f.apply, f.notify)
	}
	if err := v.Sync(ctx); err != nil {
		return v, err
	}
	go v.sweep(ctx) // only a complete view shows which snapshots are in use
	return v, nil
}

// fold applies a stream's messages as they arrive.
func (v *View) fold(ctx context.Context, f *feed, apply func(*View, stored) error, notify bool) {
	defer f.close()
	for {
		msgs, err := f.next(ctx, nil)
		v.mu.Lock()
		if err != nil {
			v.err = err
		}
		for _, m := range msgs {
			if err := apply(v, m); err != nil {
				v.l.log.Error("apply message failed", "subject", m.subject, "rev", m.seq, "err", err)
			}
			v.applied[f.stream] = m.seq
		}
		v.announce(notify || err != nil)
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// announce wakes waiting callers and, with notify, the receivers of Changes.
func (v *View) announce(notify bool) {
	close(v.changed)
	v.changed = make(chan struct{})
	if !notify {
		return
	}
	for ch := range v.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Changes returns a channel that receives a value after each change except of processes,
// which change a hundred times as often and need no reaction. It buffers one value: a slow
// receiver sees one for many changes. Call stop to end it.
func (v *View) Changes() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watchers[ch] = struct{}{}
	return ch, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.watchers, ch)
	}
}

// wait waits until done returns true; done runs with the view locked.
func (v *View) wait(ctx context.Context, done func() bool) error {
	v.mu.Lock()
	for !done() {
		if err := v.err; err != nil {
			v.mu.Unlock()
			return unavailable("view", "", err)
		}
		changed := v.changed
		v.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		v.mu.Lock()
	}
	v.mu.Unlock()
	return nil
}

func (v *View) applyLease(m stored) error {
	lease, err := codec.DecodeLease(m.data)
	if err != nil {
		return err
	}
	v.hosts[lease.Host] = fleet.Host{Lease: lease, Rev: m.seq, Received: time.Now()}
	return nil
}

// Hosts returns all hosts that ever had a lease, by name, including those gone.
func (v *View) Hosts() []fleet.Host {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sortedHosts(v.hosts)
}

// Host returns one host.
func (v *View) Host(name string) (fleet.Host, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h, ok := v.hosts[name]
	return h, ok
}

func (v *View) sweep(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			v.forget(time.Now().Add(-v.l.retention))
		}
	}
}

// forget drops what ended before the given time. Counts stay.
func (v *View) forget(before time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, s := range v.sandboxes {
		if s.Over() && s.Ended.Before(before) && v.members[id] == nil {
			delete(v.sandboxes, id)
		}
	}
	for id, b := range v.builds {
		if b.Created.Before(before.Add(v.l.retention - auditAge)) { // its record is removed, too
			delete(v.builds, id)
		}
	}
	left := before.Add(v.l.retention - deletedAge - viewAge)
	v.forgetSnapshots(left)
	v.forgetNamed(left)
	v.lifecycle.forget(before.Add(v.l.retention - LifecycleAge))
	of := map[sandbox.ID]bool{}
	for id, e := range v.processes {
		if !e.Active() && e.Ended.Before(before) {
			delete(v.processes, id)
			of[id.Sandbox()] = true
		}
	}
	for id := range of {
		v.pruneMembers(id)
	}
}
