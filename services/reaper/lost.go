package reaper

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

const (
	// parallel is how many records are ended concurrently: an append is a round trip.
	parallel = 16
	// maxTries is how often a record with a concurrent writer is read again before it is left
	// to the next pass.
	maxTries = 4
	// recordTimeout is the timeout for one record: during an outage some are unreachable.
	recordTimeout = 2 * time.Second
)

// endAll ends the open records of one dead host, and returns the sandboxes with records that
// could not be ended. The order is random, so that unreachable records are not always
// first.
func (r *reaper) endAll(ctx context.Context, h fleet.Host, all []process.Summary) (left map[sandbox.ID]bool) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(parallel)
	left = make(map[sandbox.ID]bool)
	for i := range all {
		g.Go(func() error {
			if r.revived(&h) { // while others were being ended
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, recordTimeout)
			defer cancel()
			if err := r.end(ctx, h, all[i].ID); err != nil {
				r.warn(ctx, "end lost process failed", string(all[i].ID), err)
				mu.Lock()
				defer mu.Unlock()
				left[all[i].ID.Sandbox()] = true
			}
			return nil
		})
	}
	g.Wait() //nolint:errcheck // no function returns an error
	return left
}

// end ends the process's record unless it has an end, and then writes the same end to the
// catalog.
func (r *reaper) end(ctx context.Context, h fleet.Host, id process.ID) error {
	sum, rev, ok := r.view.Process(id)
	if !ok {
		return nil
	}
	exit, at, last, err := r.endRecord(ctx, h, &sum)
	if err != nil || !sum.Active() {
		return err
	}
	for range maxTries {
		if err := r.cfg.Log.AddStart(ctx, record.Ref{Host: h.Host, ID: id}, &sum, last); err != nil {
			return err
		}
		sum.Exit, sum.Ended, sum.Last = &exit, at, last
		_, err = r.cfg.Log.PutSummary(ctx, &sum, rev)
		if !kind.Is(err, kind.Conflict) {
			return err
		}
		if sum, rev, err = r.cfg.Log.Summary(ctx, record.Ref{Host: h.Host, ID: id}); err != nil || !sum.Active() {
			return err
		}
	}
	return err
}

// endRecord appends the end of a process to its record, unless it has one, and returns how
// and when the process ended according to the record. An end that the host observed gets the
// time of the last event that the host stored: suspect compares those times.
func (r *reaper) endRecord(ctx context.Context, h fleet.Host, sum *process.Summary) (process.Exit, time.Time, process.Seq, error) {
	ref := record.Ref{Host: h.Host, ID: sum.ID}
	var err error
	for range maxTries {
		w := r.cfg.Log.Writer(ref, h.Epoch)
		var tip record.Tail
		tip, err = w.Recover(ctx)
		if err != nil && !kind.Is(err, kind.NotFound) {
			return process.Exit{}, time.Time{}, 0, err
		}
		if tip.Finished != nil {
			return tip.Finished.Exit, tip.At, tip.Last, nil
		}
		evs, exit, at := lastEvents(sum, h.Host, &tip)
		err = w.Append(ctx, evs)
		if err == nil {
			r.cfg.Slog.Warn("process lost with its host", "process", sum.ID, "host", h.Host)
			return exit, at, w.Last(), nil
		}
		if !kind.Is(err, kind.Fenced) && !kind.Is(err, kind.Conflict) {
			break
		}
	}
	return process.Exit{}, time.Time{}, 0, err
}

// lastEvents returns the events that end a record with the given tail, and how and when the
// process ended. The end is the one that the host wrote to the catalog, or else the one in
// the record, at the time of the last event that the host stored.
func lastEvents(sum *process.Summary, host string, tip *record.Tail) ([]process.Event, process.Exit, time.Time) {
	if sum.Exit != nil && sum.Last > 0 {
		return process.Ending(tip.Last, sum), *sum.Exit, sum.Ended
	}
	seen := cmp.Or(sum.Exit, tip.Exited)
	bodies, exit := endEvents(sum, host, seen, tip.Last == 0)
	at := time.Now()
	if seen != nil && !tip.At.IsZero() {
		at = tip.At
	}
	return number(tip.Last, at, bodies), exit, at
}

// endEvents returns the events that end a record. An exit that the host observed is kept;
// one that was not observed has no code. A record without events also gets its first event,
// for waiting readers.
func endEvents(sum *process.Summary, host string, seen *process.Exit, empty bool) ([]process.Body, process.Exit) {
	var out []process.Body
	if empty {
		out = append(out, process.Accepted{Spec: sum.Spec, Tenant: sum.Tenant})
	}
	if seen != nil {
		return append(out, process.Finished{Exit: *seen}), *seen
	}
	exit := process.Exit{Cause: process.CauseHostLost, Message: reason(host)}
	return append(out, process.Lost{Reason: reason(host)}, process.Finished{Exit: exit}), exit
}

func number(last process.Seq, at time.Time, bodies []process.Body) []process.Event {
	out := make([]process.Event, len(bodies))
	for i, b := range bodies {
		out[i] = process.Event{Seq: last + 1 + process.Seq(i), Time: at, Body: b}
	}
	return out
}
