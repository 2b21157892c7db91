package commands

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/services/hostd/internal/cursor"
)

// storeEvery bounds how many commands a new run reads again in vain.
const storeEvery = time.Second

// Config configures a Reader. All fields are required.
type Config struct {
	Host  string // name of the host
	Log   *events.Log
	Store func(cursor uint64) error // stores the cursor for the next run
	Fault func(point string) error  // interrupts the host in tests
	Slog  *slog.Logger
}

// Reader reads the commands for a host and replies to them.
type Reader struct {
	cfg    Config
	cursor *cursor.Cursor
}

// New returns a reader whose cursor is at rev.
func New(cfg Config, rev uint64) *Reader { return &Reader{cfg: cfg, cursor: cursor.New(rev)} }

// Run reads the commands after the cursor and calls handle for each, until ctx ends. Each command
// must be ended or refused once.
func (r *Reader) Run(ctx context.Context, handle func(command.Command)) error {
	err := r.cfg.Log.Commands(ctx, r.cfg.Host, r.cursor.Position(), func(c command.Command) error {
		r.Begin(c.Rev)
		handle(c)
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return fmt.Errorf("commands: %w", err)
}

// StoreCursor stores the cursor from time to time until ctx ends, and then once more if last
// returns true.
func (r *Reader) StoreCursor(ctx context.Context, last func() bool) error {
	t := time.NewTicker(storeEvery)
	defer t.Stop()
	stored := r.Position()
	for {
		select {
		case <-ctx.Done():
			if !last() {
				return nil
			}
			return r.cfg.Store(r.Position())
		case <-t.C:
		}
		pos := r.Position()
		if pos == stored {
			continue
		}
		if err := r.cfg.Store(pos); err != nil { // a full disk must not end the run, which frees space on it
			r.cfg.Slog.Warn("store command cursor failed", "err", err)
			continue
		}
		stored = pos
		if err := r.cfg.Fault("cursorStored"); err != nil {
			return err
		}
	}
}

// Begin opens a command.
func (r *Reader) Begin(rev uint64) { r.cursor.Begin(rev) }

// Charge charges an open command to an account until it ends.
func (r *Reader) Charge(rev uint64, account *atomic.Int64, bytes int64) {
	r.cursor.Charge(rev, account, bytes)
}

// End ends a command: it need not be read again. It may be called repeatedly.
func (r *Reader) End(rev uint64) { r.cursor.End(rev) }

// Position returns the cursor.
func (r *Reader) Position() uint64 { return r.cursor.Position() }

// Answer replies to a command's sender.
func (r *Reader) Answer(c command.Command, reply command.Reply) {
	r.cfg.Log.Reply(c, reply)
	r.cfg.Fault("replied") //nolint:errcheck // it ends the run
}

// Refuse ends a command and replies with an error.
func (r *Reader) Refuse(c command.Command, err error) {
	r.End(c.Rev)
	r.Answer(c, command.Reply{Err: err})
}
