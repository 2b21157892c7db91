package bundles

import (
	"context"
	"maps"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Resolved is the opened values of several bundles.
type Resolved struct {
	Values map[string]string
	Heads  []bundle.Head // with the generations that the values are from
}

// Resolve returns the values of a tenant's bundles, not older than the call, and those of each
// bundle from one generation. It returns NotFound if a bundle does not exist, and Invalid if there
// are more than bundle.MaxResolved or two have a key of the same name.
func (b *Bundles) Resolve(ctx context.Context, tenant string, names []string) (Resolved, error) {
	if len(names) == 0 {
		return Resolved{}, nil
	}
	checked := make([]bundle.Name, len(names))
	for i, name := range names {
		var err error
		if checked[i], err = existing(name); err != nil {
			return Resolved{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.core.CallTimeout)
	defer cancel()
	for last := ""; ; {
		s, err := b.store.State(ctx, tenant)
		if err != nil {
			return Resolved{}, err
		}
		heads, err := s.Select(checked)
		if err != nil {
			return Resolved{}, err
		}
		out, missing, err := b.open(ctx, tenant, heads)
		switch {
		case err != nil:
			return Resolved{}, err
		case missing == "":
			return out, nil
		case missing == last: // it is the valid generation, and yet incomplete
			return Resolved{}, kind.New(kind.Internal, "resolve secrets", missing, "a value is missing")
		}
		last = missing
	}
}

// open reads and opens the values of bundles. missing is a generation that was removed meanwhile.
func (b *Bundles) open(ctx context.Context, tenant string, heads []bundle.Head) (out Resolved, missing string, err error) {
	out = Resolved{Values: make(map[string]string), Heads: heads}
	for i := range heads {
		h := &heads[i]
		values, ok, err := b.values(ctx, tenant, h)
		if err != nil || !ok {
			return Resolved{}, string(h.Generation), err
		}
		maps.Copy(out.Values, values)
	}
	return out, "", nil
}

// values reads and opens the values of one bundle.
func (b *Bundles) values(ctx context.Context, tenant string, h *bundle.Head) (values map[string]string, ok bool, err error) {
	texts, found := make([]string, len(h.Keys)), make([]bool, len(h.Keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrent)
	for i, key := range h.Keys {
		group.Go(func() error {
			v, ok, err := b.store.Value(ctx, tenant, h.Generation, i)
			if err != nil || !ok {
				return err
			}
			if v.Key != key {
				return kind.New(kind.Internal, "resolve secrets", string(h.Generation), "a value is that of another key")
			}
			found[i] = true
			texts[i], err = b.core.Sealer.Open(bundle.Place(tenant, h.Generation, key), v.Sealed)
			return core.LogError("open secret", "", err)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, false, err
	}
	values = make(map[string]string, len(texts))
	for i, key := range h.Keys {
		if !found[i] {
			return nil, false, nil
		}
		values[key] = texts[i]
	}
	return values, true, nil
}
