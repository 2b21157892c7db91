package keystore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// ChangeKind is what changed. Its values are stored.
type ChangeKind uint32

// The kinds of changes.
const (
	Created     ChangeKind = 1 // the first keys
	MasterKey   ChangeKind = 2 // another master key seals the keys
	DataKeyMade ChangeKind = 3 // another data key seals values
	DataKeyGone ChangeKind = 4 // an old data key was removed
)

// Change is a change of the keys, for operators.
type Change struct {
	Time   time.Time
	Kind   ChangeKind
	Data   uint32 // data key that was made or removed; 0: none
	Master string // id of the master key that seals the keys since then
	By     string // API key or service; empty for the first keys
}

// maxChanges is the number of changes kept.
const maxChanges = 200

// State is what operators may know of the keys.
type State struct {
	Rev     uint64   // grows with every change
	Master  string   // id of the master key that seals the keys
	Current uint32   // data key that seals new values
	Old     []uint32 // replaced data keys that are still stored, oldest first
	Changes []Change // the last ones, oldest first
}

func (at *version) state() State {
	return State{Rev: at.rev, Master: at.set.MasterID(), Current: at.set.Current, Old: at.set.Old(), Changes: at.changes}
}

// note adds a change to a version that is about to be stored.
func (at *version) note(c Change, by string) {
	c.Time, c.Master, c.By = time.Now(), at.set.MasterID(), by
	at.changes = append(slices.Clone(at.changes), c)
	at.changes = at.changes[max(0, len(at.changes)-maxChanges):]
}

// State returns the state of the keys. It needs no master key, unless the store has no keys yet.
func (k *Keys) State(ctx context.Context) (State, error) {
	at, ok, err := k.stored(ctx)
	if err == nil && !ok {
		at, _, err = k.open(ctx)
	}
	if err != nil {
		return State{}, err
	}
	return at.state(), nil
}

// RotateMaster seals the keys with this service's current master key, on behalf of by. It does
// nothing if that was done before. It returns Precondition if a running service does not have
// that master key, unless force is set, or if this one lacks the replaced one.
func (k *Keys) RotateMaster(ctx context.Context, by string, force bool) (State, error) {
	return k.change(ctx, func(at *version, master *seal.Master) (done bool, err error) {
		if at.set.Sealed(master) {
			return true, nil
		}
		if err := k.require(ctx, force, "the new master key "+master.ID(), func(r *Report) bool { return slices.Contains(r.Masters, master.ID()) }); err != nil {
			return false, err
		}
		if at.set, err = at.set.Rewrapped(master); err == nil {
			at.note(Change{Kind: MasterKey}, by)
		}
		return false, err
	})
}

// RotateData makes another data key the current one, on behalf of by, unless that was done
// before: replaced is the number of the key that was current. It returns Precondition if a running
// service could not open the new key, unless force is set.
func (k *Keys) RotateData(ctx context.Context, by string, replaced uint32, force bool) (State, error) {
	return k.change(ctx, func(at *version, master *seal.Master) (done bool, err error) {
		if at.set.Current != replaced {
			if _, old := at.set.Data[replaced]; old || replaced > 0 && replaced < at.set.Current {
				return true, nil
			}
			return false, kind.Newf(kind.Invalid, "rotate data key", "", "data key %d does not exist", replaced)
		}
		id := at.set.MasterID()
		if err := k.require(ctx, force, "the master key "+id, func(r *Report) bool { return slices.Contains(r.Masters, id) }); err != nil {
			return false, err
		}
		if at.set, err = at.set.Rotated(master); err == nil {
			at.note(Change{Kind: DataKeyMade, Data: at.set.Current}, by)
		}
		return false, err
	})
}

// RemoveData removes an old data key, on behalf of by, unless that was done before. Values that
// it sealed are lost. It returns Precondition for the current key, and if a running service cannot
// open the current one.
func (k *Keys) RemoveData(ctx context.Context, by string, number uint32) (State, error) {
	return k.change(ctx, func(at *version, _ *seal.Master) (done bool, err error) {
		if _, ok := at.set.Data[number]; !ok {
			return true, nil
		}
		current := at.set.Current
		if err := k.require(ctx, false, "the current data key", func(r *Report) bool { return r.Data >= current }); err != nil {
			return false, err
		}
		if at.set, err = at.set.Without(number); err == nil {
			at.note(Change{Kind: DataKeyGone, Data: number}, by)
		}
		return false, err
	})
}

// change stores the version that edit makes of the last one, until no other writer was faster,
// and removes all versions before it.
func (k *Keys) change(ctx context.Context, edit func(*version, *seal.Master) (done bool, err error)) (State, error) {
	for {
		at, master, err := k.open(ctx)
		if err != nil {
			return State{}, err
		}
		done, err := edit(&at, master)
		if err != nil {
			return State{}, err
		}
		if !done {
			rev, err := k.put(ctx, at)
			if kind.Is(err, kind.Conflict) {
				continue
			}
			if err != nil {
				return State{}, err
			}
			at.rev = rev
		}
		return at.state(), k.removeBefore(ctx, at.rev)
	}
}

// Tidy removes all versions of the keys but the last, as each change does.
func (k *Keys) Tidy(ctx context.Context) error {
	at, ok, err := k.stored(ctx)
	if err != nil || !ok {
		return err
	}
	return k.removeBefore(ctx, at.rev)
}

func (k *Keys) removeBefore(ctx context.Context, rev uint64) error {
	s, err := k.conn.Stream(ctx, streams.Secrets)
	if err == nil {
		err = s.Purge(ctx, subject, rev)
	}
	if err != nil {
		return &kind.Error{Op: "remove old keys", Kind: kind.Unavailable, Msg: "earlier versions of the keys could not be removed: try again", Err: err}
	}
	return nil
}

// require returns Precondition with the running services for which has is false.
func (k *Keys) require(ctx context.Context, force bool, what string, has func(*Report) bool) error {
	if force {
		return nil
	}
	all, err := k.Reports(ctx)
	if err != nil {
		return err
	}
	var lack []string
	for i := range all {
		if r := &all[i]; !has(r) {
			lack = append(lack, r.Service)
		}
	}
	if len(lack) == 0 {
		return nil
	}
	return &kind.Error{
		Op: "change keys", Kind: kind.Precondition, Code: "services_without_key",
		Msg: "running services cannot open " + what + " yet: " + strings.Join(lack, ", ") + "; give it to them, or stop them",
	}
}
