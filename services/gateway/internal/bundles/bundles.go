package bundles

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	writeTimeout  = 30 * time.Second // maximum time to store a bundle
	removeTimeout = 5 * time.Second  // maximum time to remove earlier values
	sweepInterval = 10 * time.Minute
	concurrent    = 8 // values that are stored or read at the same time
)

// Store stores bundles. *bundlestore.Store implements it.
type Store interface {
	State(ctx context.Context, tenant string) (bundle.State, error)
	Append(ctx context.Context, from *bundle.State, b bundle.Body) (next bundle.State, was bundle.Head, err error)
	PutValue(ctx context.Context, tenant string, g bundle.Generation, index int, v bundle.Value) error
	Value(ctx context.Context, tenant string, g bundle.Generation, index int) (v bundle.Value, ok bool, err error)
	Remove(ctx context.Context, tenant string, g bundle.Generation) error
	Sweep(ctx context.Context, now time.Time) (int, error)
}

// Bundles implements the operations on secret bundles. Its methods may be called concurrently.
type Bundles struct {
	core  *core.Core
	store Store
}

// New returns Bundles. It does no I/O.
func New(c *core.Core, s Store) *Bundles { return &Bundles{c, s} }

// Run removes values of no bundle until ctx ends.
func (b *Bundles) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, err := b.store.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
				b.core.Slog.Warn("remove old secrets failed", "err", err)
			}
		}
	}
}

// List returns the bundles of a tenant, by name.
func (b *Bundles) List(ctx context.Context, p core.Principal) ([]bundle.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, b.core.CallTimeout)
	defer cancel()
	s, err := b.store.State(ctx, p.Tenant)
	return s.Heads, err
}

// Get returns a bundle. It returns NotFound if the tenant has none of that name.
func (b *Bundles) Get(ctx context.Context, p core.Principal, name string) (bundle.Head, error) {
	n, err := existing(name)
	if err != nil {
		return bundle.Head{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.core.CallTimeout)
	defer cancel()
	s, err := b.store.State(ctx, p.Tenant)
	if err != nil {
		return bundle.Head{}, err
	}
	return s.Find(n)
}

// existing returns a name under which a bundle may exist.
func existing(name string) (bundle.Name, error) {
	n, err := bundle.ParseName(name)
	if err != nil {
		return n, kind.New(kind.NotFound, "find secret bundle", "", "secret bundle not found")
	}
	return n, nil
}

// Create makes a bundle. It returns Invalid for a name or values that are not valid, Conflict if
// the bundle exists, and Throttled if the tenant has too many.
func (b *Bundles) Create(ctx context.Context, p core.Principal, name string, values map[string]string) (bundle.Head, error) {
	n, err := bundle.ParseName(name)
	if err != nil {
		return bundle.Head{}, err
	}
	return b.write(ctx, p, values, func(keys []string, g bundle.Generation) bundle.Body {
		return bundle.Created{Name: n, Keys: keys, Generation: g, At: time.Now()}
	}, n)
}

// Replace replaces all values of a bundle. It returns Invalid for values that are not valid, and
// NotFound if the bundle does not exist.
func (b *Bundles) Replace(ctx context.Context, p core.Principal, name string, values map[string]string) (bundle.Head, error) {
	n, err := existing(name)
	if err != nil {
		return bundle.Head{}, err
	}
	return b.write(ctx, p, values, func(keys []string, g bundle.Generation) bundle.Body {
		return bundle.Rotated{Name: n, Keys: keys, Generation: g, At: time.Now()}
	}, n)
}

// Delete deletes a bundle and its values. It returns NotFound if it does not exist.
func (b *Bundles) Delete(ctx context.Context, p core.Principal, name string) error {
	n, err := existing(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, was, err := b.append(ctx, p.Tenant, bundle.Deleted{Name: n})
	if err == nil {
		b.remove(ctx, p.Tenant, was.Generation)
	}
	return err
}

// write stores values and then the event that makes them valid.
func (b *Bundles) write(ctx context.Context, p core.Principal, values map[string]string, event func([]string, bundle.Generation) bundle.Body, n bundle.Name) (bundle.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	keys, g := bundle.Keys(values), bundle.NewGeneration()
	if err := b.check(ctx, p.Tenant, values, event(keys, g)); err != nil {
		return bundle.Head{}, err
	}
	if err := b.put(ctx, p.Tenant, g, keys, values); err != nil {
		return bundle.Head{}, err
	}
	next, was, err := b.append(ctx, p.Tenant, event(keys, g))
	switch {
	case kind.Is(err, kind.Unavailable), kind.Is(err, kind.Deadline), kind.Is(err, kind.Canceled):
		return bundle.Head{}, err // the event may be stored
	case err != nil:
		b.remove(ctx, p.Tenant, g)
		return bundle.Head{}, err
	case was.Generation != "":
		b.remove(ctx, p.Tenant, was.Generation)
	}
	return next.Find(n)
}

// check returns the error of a change before anything is stored for it.
func (b *Bundles) check(ctx context.Context, tenant string, values map[string]string, event bundle.Body) error {
	if err := bundle.CheckValues(values); err != nil {
		return err
	}
	s, err := b.store.State(ctx, tenant)
	if err == nil {
		_, _, err = s.Apply(event)
	}
	return err
}

// put stores the values of a new generation.
func (b *Bundles) put(ctx context.Context, tenant string, g bundle.Generation, keys []string, values map[string]string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	for i, key := range keys {
		group.Go(func() error {
			sealed, err := b.core.Sealer.Seal(bundle.Place(tenant, g, key), values[key])
			if err != nil {
				return core.LogError("seal secret", "", err)
			}
			return b.store.PutValue(ctx, tenant, g, i, bundle.Value{Key: key, Sealed: sealed})
		})
	}
	return group.Wait()
}

// append stores an event, also if other bundles of the tenant change meanwhile.
func (b *Bundles) append(ctx context.Context, tenant string, event bundle.Body) (next bundle.State, was bundle.Head, err error) {
	for {
		s, err := b.store.State(ctx, tenant)
		if err != nil {
			return s, was, err
		}
		if _, _, err := s.Apply(event); err != nil {
			return s, was, err
		}
		next, was, err = b.store.Append(ctx, &s, event)
		if !kind.Is(err, kind.Conflict) {
			return next, was, err
		}
	}
}

// remove removes the values of a generation that is not valid any more. If that fails, Run does it.
func (b *Bundles) remove(ctx context.Context, tenant string, g bundle.Generation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := b.store.Remove(ctx, tenant, g); err != nil {
		b.core.Slog.Warn("remove earlier secrets failed", "tenant", tenant, "err", err)
	}
}
