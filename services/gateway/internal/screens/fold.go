package screens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	recordlog "github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/screen"
)

// keyEvery is the number of bytes of output between two key frames.
const keyEvery = 256 << 10

// folds folds records into screens. Its methods may be called concurrently.
type folds struct {
	records record.Records
	cache   *cache
	stored  *stored
	locks   keyed
	folded  func(bytes int) // called for output that is folded
}

func newFolds(r record.Records, size int) *folds {
	f := &folds{records: r, cache: newCache(size), locks: newKeyed(), folded: func(int) {}}
	f.stored = newStored(nil, f.cache, slog.New(slog.DiscardHandler))
	return f
}

// foldTimeout is the maximum time of a fold, which goes on when its request has ended.
const foldTimeout = 5 * time.Minute

// folded is a screen at a position of its record.
type folded struct {
	id     process.ID
	screen *screen.Screen
	seq    process.Seq // the last event folded
	last   process.Seq // the last event of the record, as far as known
	end    *process.Exit
	fresh  int    // bytes folded since the last key frame
	output uint64 // bytes of output folded, also before the first key frame
	keep   bool   // key frames may be stored: the record has the output
	when   time.Time
}

// add folds an event.
func (f *folded) add(e *process.Event) {
	switch b := e.Body.(type) {
	case process.Accepted:
		if f.seq == 0 && b.From == "" {
			f.screen = newScreen(&b.Spec)
		}
	case process.Wrote:
		f.screen.Write(b.Data)
		f.fresh += len(b.Data)
		f.output += uint64(len(b.Data))
	case process.Resized:
		f.screen.Resize(int(min(b.Size.Cols, screen.MaxCols)), int(min(b.Size.Rows, screen.MaxRows)))
	case process.Finished:
		f.end = &b.Exit
	case process.Started, process.StdinAcked, process.Signaled, process.Truncated, process.Omitted, process.Gap, process.Exited, process.Lost, process.Failed:
	}
	f.seq, f.when = e.Seq, e.Time
	f.last = max(f.last, e.Seq)
}

func newScreen(spec *process.Spec) *screen.Screen {
	if spec.PTY == nil {
		return screen.New(0, 0, true)
	}
	return screen.New(int(min(spec.PTY.Cols, screen.MaxCols)), int(min(spec.PTY.Rows, screen.MaxRows)), false)
}

// at returns the screen after event seq; 0 is the last event stored. Its error is NotFound for
// a process that does not exist, and a *record.RangeError if seq is past the end.
func (f *folds) at(ctx context.Context, p core.Principal, id process.ID, seq process.Seq) (*folded, error) {
	out, err := f.fold(ctx, p, id, seq)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, busy(id)
	}
	return out, err
}

func (f *folds) fold(ctx context.Context, p core.Principal, id process.ID, seq process.Seq) (*folded, error) {
	sum, tip, err := summaryAndTail(ctx, f.records, p, id, seq)
	if err != nil {
		return nil, err
	}
	if tip.Last == 0 {
		return &folded{id: id, screen: newScreen(&sum.Spec)}, nil
	}
	out := &folded{id: id, last: tip.Last, keep: sum.ID == id && sum.Spec.Record.KeepsOutput()}
	if tip.Finished != nil {
		out.end = &tip.Finished.Exit
	}
	if seq == 0 {
		seq = tip.Last
	}
	unlock, err := f.locks.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		defer unlock()
		// What it has folded is of use to the next request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foldTimeout)
		defer cancel()
		done <- recovery.Do(f.stored.log, "screen", func() error { return f.foldTo(ctx, p, out, &sum.Spec, seq) })
	}()
	select {
	case err := <-done:
		return out, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// foldTo folds from the last key frame up to seq, the last event of which is stored if it is that of the
// record. The process is locked.
func (f *folds) foldTo(ctx context.Context, p core.Principal, out *folded, spec *process.Spec, seq process.Seq) error {
	out.screen, out.seq, out.output = f.cache.get(out.id, seq)
	if f.stored.load(ctx, out.id, out.seq, seq, seq == out.last) {
		out.screen, out.seq, out.output = f.cache.get(out.id, seq)
	}
	if out.screen == nil {
		out.screen = newScreen(spec)
	}
	err := f.advance(ctx, p, out, seq)
	if err == nil && out.seq == out.last {
		f.stored.end(ctx, out)
	}
	return err
}

// summaryAndTail returns the summary of a process, as far as it is known, and the tail of its record, which
// is zero if nothing is stored yet. Its error is a *record.RangeError if seq is past the end or nothing is
// left of the record.
func summaryAndTail(ctx context.Context, r record.Records, p core.Principal, id process.ID, seq process.Seq) (process.Summary, recordlog.Tail, error) {
	sum, err := r.Process(ctx, p, id)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return sum, recordlog.Tail{}, err
	}
	tip, tipErr := core.TailFrom(ctx, r, p, id, seq)
	switch {
	case kind.Is(tipErr, kind.NotFound) && err == nil && !sum.Active():
		return sum, tip, &record.RangeError{ID: id, Kind: kind.Gone}
	case kind.Is(tipErr, kind.NotFound) && err == nil: // nothing is stored yet
		return sum, recordlog.Tail{}, nil
	case tipErr != nil:
		return sum, tip, tipErr
	case seq > tip.Last:
		return sum, tip, &record.RangeError{ID: id, Kind: kind.Invalid, Last: tip.Last}
	}
	return sum, tip, nil
}

// advance folds the events up to and including seq, which are stored, and adds key frames.
func (f *folds) advance(ctx context.Context, p core.Principal, out *folded, seq process.Seq) error {
	if out.seq >= seq {
		return nil
	}
	src, err := f.open(ctx, p, out)
	if err != nil {
		return err
	}
	defer src.Close()
	for {
		batch, err := src.Next(ctx, 0)
		for i := range batch {
			if batch[i].Seq > seq {
				return nil
			}
			if err := f.step(ctx, out, &batch[i]); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		switch {
		case out.seq >= seq:
			return nil
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// step folds an event, and adds a key frame if one is due. A panic becomes an error: output
// must not end a gateway.
func (f *folds) step(ctx context.Context, out *folded, e *process.Event) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = kind.Newf(kind.Internal, "fold", string(out.id), "event %d: %v", e.Seq, r)
		}
	}()
	before := out.output
	out.add(e)
	f.folded(int(out.output - before))
	if out.fresh >= keyEvery {
		out.fresh = 0
		if err := f.cache.put(out.id, out.seq, out.output, out.screen); err != nil {
			return fmt.Errorf("add key frame: %w", err)
		}
	}
	f.stored.step(ctx, out, before)
	return nil
}

// source yields events.
type source interface {
	Next(ctx context.Context, idle time.Duration) ([]process.Event, error)
	Close()
}

// open opens the record after the last event folded. If retention dropped the events that
// follow, it begins at the first one left.
func (f *folds) open(ctx context.Context, p core.Principal, out *folded) (source, error) {
	return openAt(ctx, f.records, p, out.id, out.seq)
}

func openAt(ctx context.Context, r record.Records, p core.Principal, id process.ID, after process.Seq) (source, error) {
	opened, err := record.Open(ctx, r, p, id, record.Options{Position: record.Position{After: after}, Follow: true})
	var gone *record.RangeError
	if errors.As(err, &gone) && gone.Kind == kind.Gone && gone.First > after+1 {
		opened, err = record.Open(ctx, r, p, id, record.Options{Position: record.Position{After: gone.First - 1}, Follow: true})
	}
	if err != nil {
		return nil, err
	}
	return opened.Source, nil
}

// keyed is a set of locks, one for each process.
type keyed struct {
	mu   sync.Mutex
	held map[process.ID]*lock
}

func newKeyed() keyed { return keyed{held: make(map[process.ID]*lock)} }

type lock struct {
	taken chan struct{}
	users int
}

// lock waits for the lock of id.
func (k *keyed) lock(ctx context.Context, id process.ID) (unlock func(), err error) {
	k.mu.Lock()
	l := k.held[id]
	if l == nil {
		l = &lock{taken: make(chan struct{}, 1)}
		k.held[id] = l
	}
	l.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, id)
		}
	}
	select {
	case l.taken <- struct{}{}:
		return func() { <-l.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
