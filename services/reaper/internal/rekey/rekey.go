package rekey

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/keystore"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/reseal"
	"github.com/millrace/millrace/events/seal"
)

// Config configures the rotation. A zero field means its default.
type Config struct {
	Log     *events.Log   // required
	Slog    *slog.Logger  // default: none
	Service string        // name of this service in the changes of the keys; default reaper
	Every   time.Duration // interval between two reads of the keys; default 5 s
	// Grace is how long a replaced key is kept before the first search for its values, and
	// between two searches; default 10 min, at least [MinGrace].
	Grace time.Duration
}

const (
	// DefaultGrace is far longer than a request takes, so that no value is stored long after it
	// was sealed.
	DefaultGrace = 10 * time.Minute
	// MinGrace is more than the time for which a service seals with a replaced key.
	MinGrace = seal.Fresh + time.Second

	// reportEvery is the number of values after which the progress is stored.
	reportEvery = 64
	// stepTimeout bounds one pass or search, so that a stream that cannot be read is noticed.
	stepTimeout = 10 * time.Minute
)

func setDefaults(cfg *Config) {
	cfg.Slog = cmp.Or(cfg.Slog, slog.New(slog.DiscardHandler))
	cfg.Service = cmp.Or(cfg.Service, "reaper")
	cfg.Every = cmp.Or(max(cfg.Every, 0), 5*time.Second)
	cfg.Grace = max(cmp.Or(cfg.Grace, DefaultGrace), MinGrace)
}

// worker finishes rotations. It belongs to the goroutine of Run.
type worker struct {
	cfg  Config
	ring *seal.Ring

	tidied  uint64               // revision of the keys whose earlier versions were removed
	current uint32               // current data key when it was last read
	since   time.Time            // when that was first read
	sealed  bool                 // a pass has sealed all values with it
	next    time.Time            // of the next search
	clean   map[uint32]time.Time // when the first search began that found nothing of a key
	last    map[uint32]reseal.Found
	use     keystore.Use // as stored last
}

// Run finishes rotations until ctx ends, which is not an error. It returns an error if the keys
// cannot be opened at the start.
func Run(ctx context.Context, cfg Config) error {
	setDefaults(&cfg)
	ring, err := cfg.Log.Ring(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	w := &worker{cfg: cfg, ring: ring, clean: make(map[uint32]time.Time), last: make(map[uint32]reseal.Found)}
	tick := time.NewTicker(cfg.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look reads the keys and does what is due. Failures are logged and retried.
func (w *worker) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	state, err := w.cfg.Log.State(ctx)
	if err != nil {
		w.warn(ctx, "read keys failed", err)
		return
	}
	if w.tidied != state.Rev {
		if err := w.cfg.Log.Tidy(ctx); err != nil {
			w.warn(ctx, "remove earlier keys failed", err)
			return
		}
		w.tidied = state.Rev
	}
	now := time.Now()
	if w.current != state.Current {
		w.current, w.since, w.sealed, w.next = state.Current, now, false, now.Add(w.cfg.Grace)
		clear(w.clean)
	}
	if len(state.Old) == 0 && w.sealed {
		return
	}
	if err := w.ring.Refresh(); err != nil {
		w.warn(ctx, "open keys failed", err)
		return
	}
	if !w.sealed {
		w.sealed = w.reseal(ctx, state.Old)
	}
	if w.sealed && len(state.Old) > 0 && !now.Before(w.next) {
		w.next = now.Add(w.cfg.Grace)
		w.retire(ctx, state.Old)
	}
}

// reseal seals all values again that the current key did not seal, and reports whether that is
// done.
func (w *worker) reseal(ctx context.Context, old []uint32) bool {
	use := w.progress(old)
	was := use.Resealed
	p, err := w.cfg.Log.Values().Reseal(ctx, w.ring, func(p reseal.Progress) error {
		if use.Resealed, use.Left = was+p.Resealed, p.Left; p.Resealed%reportEvery == 0 {
			w.store(ctx, use)
		}
		return ctx.Err()
	})
	use.Resealed, use.Left = was+p.Resealed, p.Left
	if len(old) > 0 || p.Resealed > 0 || p.Left > 0 {
		w.store(ctx, use)
	}
	if p.Resealed > 0 {
		w.cfg.Slog.Info("sealed values again", "data_key", w.current, "values", p.Resealed)
	}
	if err != nil {
		w.warn(ctx, "seal values again failed", err)
	}
	return err == nil || kind.Is(err, kind.Internal) // values that cannot be opened stay as they are
}

// retire seals again what was stored meanwhile, and removes the replaced keys that no value needs.
func (w *worker) retire(ctx context.Context, old []uint32) {
	if !w.reseal(ctx, old) {
		return
	}
	use := w.progress(old)
	for _, number := range old {
		begun := time.Now()
		found, err := w.cfg.Log.Values().Find(ctx, number, w.last[number])
		if err != nil {
			w.warn(ctx, "search values of a replaced key failed", err)
			return
		}
		w.last[number] = found
		i := slices.IndexFunc(use.Kept, func(k keystore.Kept) bool { return k.Data == number })
		use.Kept[i].Stream, use.Kept[i].Stored = found.Stream, found.Stored
		first, clean := w.clean[number]
		switch {
		case found.Stream != "":
			delete(w.clean, number)
		case !clean:
			w.clean[number] = begun
		case begun.Sub(first) >= w.cfg.Grace:
			w.remove(ctx, number)
		}
	}
	w.store(ctx, use)
}

func (w *worker) remove(ctx context.Context, number uint32) {
	if _, err := w.cfg.Log.RemoveData(ctx, w.cfg.Service, number); err != nil {
		w.warn(ctx, "remove data key failed", err)
		return
	}
	w.cfg.Slog.Info("removed data key", "data_key", number)
}

// progress returns the use of the keys as stored last, for the replaced keys in old.
func (w *worker) progress(old []uint32) keystore.Use {
	u := keystore.Use{By: w.cfg.Service, Current: w.current}
	if w.use.Current == w.current {
		u.Resealed, u.Left = w.use.Resealed, w.use.Left
	}
	for _, number := range old {
		k := keystore.Kept{Data: number}
		if f := w.last[number]; f.Stream != "" {
			k.Stream, k.Stored = f.Stream, f.Stored
		}
		u.Kept = append(u.Kept, k)
	}
	return u
}

// store stores the use of the keys, for operators only.
func (w *worker) store(ctx context.Context, u keystore.Use) {
	u.Time = time.Now()
	if err := w.cfg.Log.PutUse(ctx, u); err != nil {
		w.warn(ctx, "store use of keys failed", err)
		return
	}
	w.use = u
}

func (w *worker) warn(ctx context.Context, msg string, err error) {
	if ctx.Err() == nil {
		w.cfg.Slog.Warn(msg, "err", err)
	}
}
