package procs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

const (
	// maxOvertaken is how often one Start moves on to the next try because another
	// request's command was refused for the one before.
	maxOvertaken = 8
	// missingTries is how many tries in a row may be missing from the catalog because they
	// fell out of retention before later ones.
	missingTries = 16
)

// startKeyed attaches to the key's current try, and starts it if it does not exist yet.
//
// Two concurrent requests choose the same try. Its record has one first event, so that one
// of their commands starts it or is refused. The other request then moves on to the next
// try, whose record again has one first event.
func (ps *Procs) startKeyed(ctx context.Context, p core.Principal, st *sandbox.State, spec process.Spec, key string) (Attached, error) {
	hash := spec.Hash(ps.core.Sealer, st.Tenant, st.ID)
	if !st.IsRunning() {
		// Nothing can be started any more: a miss is final only after the view has caught up.
		if err := ps.core.Sync(ctx); err != nil {
			return Attached{}, err
		}
	}
	n, known, err := ps.currentTry(ctx, st, key, hash)
	if err != nil {
		return Attached{}, err
	}
	for range maxOvertaken {
		id, command := process.AttemptID(st.ID, key, n), ""
		a := Attached{ID: id}
		if known {
			a.Reader = latency.NewReader(ps.readAll(record.Ref{Host: st.Host, ID: id}).ShownBy(ps.core.View), nil, time.Time{})
		} else if a, command, err = ps.startAs(ctx, p, st, id, spec, ps.readAll); err != nil {
			return Attached{}, err
		}
		overtaken, err := ps.claimedBy(ctx, record.Ref{Host: st.Host, ID: id}, hash, command)
		if err == nil && !overtaken {
			return a, nil
		}
		a.Reader.Close()
		if err != nil {
			return Attached{}, err
		}
		n, known = n+1, false
	}
	return Attached{}, kind.New(kind.Unavailable, "start", string(st.ID), "the start was refused too often, try again")
}

// readAll reads a record from its first event, which may be stored already.
func (ps *Procs) readAll(ref record.Ref) *record.Reader { return ps.core.Log.Read(ref, 0) }

// currentTry returns the key's current try: the last that was begun, or the one after it if
// that was refused. known reports whether it was begun.
func (ps *Procs) currentTry(ctx context.Context, st *sandbox.State, key string, hash []byte) (n int, known bool, err error) {
	n, last := ps.lastTry(st.ID, key)
	if last == nil {
		return 0, false, nil
	}
	if !neverRan(last.Exit) {
		return n, true, nil
	}
	// The catalog may be written first: only the record shows that the try is over.
	refused, err := ps.refusedTry(ctx, record.Ref{Host: st.Host, ID: last.ID}, hash)
	if refused {
		return n + 1, false, err
	}
	return n, true, err
}

// lastTry returns the last try of a key in the catalog; nil if no try is there.
func (ps *Procs) lastTry(sbx sandbox.ID, key string) (n int, last *process.Summary) {
	for i := 0; i <= n+missingTries; i++ {
		if s, _, ok := ps.core.View.Process(process.AttemptID(sbx, key, i)); ok {
			n, last = i, &s
		}
	}
	return n, last
}

// neverRan reports whether a process ended before any of it ran.
func neverRan(x *process.Exit) bool { return x != nil && x.Cause == process.CauseNotStarted }

// refusedTry reports whether the record of a try ends before anything ran. It returns
// Conflict if the try had another spec.
func (ps *Procs) refusedTry(ctx context.Context, ref record.Ref, hash []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
	defer cancel()
	tip, err := ps.core.Log.Tail(ctx, ref)
	switch {
	case kind.Is(err, kind.NotFound): // claimed, or out of retention: a reader gets the error
		return false, nil
	case err != nil:
		return false, core.LogError("read", string(ref.ID), err)
	case tip.Finished == nil || !neverRan(&tip.Finished.Exit):
		return false, nil
	}
	r := ps.core.Log.Read(ref, 0)
	defer r.Close()
	batch, err := r.Next(ctx, 0)
	if err != nil && !errors.Is(err, io.EOF) && !kind.Is(err, kind.Gone) {
		return false, core.LogError("read", string(ref.ID), err)
	}
	return true, sameSpec(ref, batch, hash)
}

// claimedBy waits for the record's first event and compares its spec with ours. overtaken
// reports that the start was refused to another command than ours, which was sent earlier
// or concurrently and does not decide about this one. command is empty for a request that
// only reads.
func (ps *Procs) claimedBy(ctx context.Context, ref record.Ref, hash []byte, command string) (overtaken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ps.core.StartTimeout+claimGrace)
	defer cancel()
	// A reader of its own: the caller's must stay at the start.
	r := ps.core.Log.Read(ref, 0)
	defer r.Close()
	for {
		batch, err := r.Next(ctx, time.Second)
		switch {
		case kind.Is(err, kind.Gone): // too old to compare; a reader gets the error
			return false, nil
		case err != nil:
			return false, &kind.Error{Op: "start", ID: string(ref.ID), Kind: kind.Unavailable,
				Msg: "the sandbox's host does not answer, try again", Err: err}
		case len(batch) == 0:
			continue
		}
		if err := sameSpec(ref, batch, hash); err != nil || command == "" {
			return false, err
		}
		first, _ := batch[0].Body.(process.Accepted)
		end, _ := batch[len(batch)-1].Body.(process.Finished)
		return neverRan(&end.Exit) && first.Command != command, nil
	}
}

// sameSpec returns Conflict if the first of the events claims the record for another spec.
func sameSpec(ref record.Ref, batch []process.Event, hash []byte) error {
	if len(batch) == 0 {
		return nil
	}
	if a, ok := batch[0].Body.(process.Accepted); ok && !bytes.Equal(a.SpecHash, hash) {
		return kind.New(kind.Conflict, "start", string(ref.ID), "the idempotency key was used with another command")
	}
	return nil
}
