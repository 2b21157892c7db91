package builder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
)

// Records stores the records of builds.
type Records interface {
	AppendBuild(ctx context.Context, s *build.State, bodies ...build.Body) (build.State, error)
}

// buildRecord is the record of a build that one run owns. It may be used concurrently, except for
// flush.
type buildRecord struct {
	builds Records
	by     string // owner in the claims
	bytes  int    // of output that this run logged

	mu         sync.Mutex
	state      build.State // guarded by mu; see current
	lastAppend time.Time   // time of the last append to the record
}

// claim returns the event that renews the claim on the build.
func (rec *buildRecord) claim() build.Claimed { return build.Claimed{By: rec.by} }

// current returns the state of the build's record; hold may append to it at any time.
func (rec *buildRecord) current() build.State {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.state
}

func (rec *buildRecord) mark() build.Mark { return rec.current().Mark }

// append appends to the build's record. It returns errFenced if another gateway did.
func (rec *buildRecord) append(ctx context.Context, bodies ...build.Body) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	state, err := rec.builds.AppendBuild(ctx, &rec.state, bodies...)
	if kind.Is(err, kind.Conflict) {
		return errFenced
	}
	if err == nil {
		rec.state, rec.lastAppend = state, time.Now()
	}
	return err
}

// hold renews the claim on the build until ctx ends or another gateway takes it over.
func (rec *buildRecord) hold(ctx context.Context, fence context.CancelCauseFunc) {
	t := time.NewTicker(claimInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		rec.mu.Lock()
		recent := time.Since(rec.lastAppend) < claimInterval
		rec.mu.Unlock()
		if recent {
			continue
		}
		if err := rec.append(ctx, rec.claim()); errors.Is(err, errFenced) {
			fence(err)
			return
		}
	}
}

func (rec *buildRecord) logged(level build.Level, text string) build.Logged {
	return build.Logged{Lines: []build.Line{line(level, text)}, Mark: rec.mark()}
}

// logLine adds a line to the log.
func (rec *buildRecord) logLine(ctx context.Context, text string) error {
	return rec.append(ctx, rec.logged(build.Info, text))
}

// log adds lines, together with the position that they reach in the step's process record.
func (rec *buildRecord) log(ctx context.Context, mark build.Mark, lines ...build.Line) error {
	return rec.append(ctx, build.Logged{Lines: lines, Mark: mark})
}
