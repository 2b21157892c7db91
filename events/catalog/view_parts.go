package catalog

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/blob"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// referenced returns all referenced parts of templates and of copies of snapshots.
func (v *View) referenced() *blob.References {
	var used blob.References
	var copies []string
	v.progress.Lock()
	for _, t := range v.templates.Docs {
		for _, sum := range t.Manifest.Parts {
			used.AddPart(sum)
		}
	}
	for _, s := range v.snapshots.Docs {
		if !s.Deleted {
			copies = append(copies, s.Copy.Manifest)
		}
	}
	v.progress.Unlock()
	for _, raw := range copies {
		if m, _, err := template.Decode([]byte(raw)); err == nil { // otherwise there is no copy
			for _, sum := range m.Parts {
				used.AddCopy(sum)
			}
		}
	}
	return &used
}

// DropCopy removes the parts of a copy that nothing else references. SweepParts removes
// those it misses.
func (v *View) DropCopy(ctx context.Context, c *sandbox.Copy) error {
	m, _, err := template.Decode([]byte(c.Manifest))
	if err != nil {
		return nil //nolint:nilerr // there is no copy
	}
	if err := v.Sync(ctx); err != nil {
		return err
	}
	return v.blobs.RemoveCopy(ctx, m.Parts, v.referenced())
}

// SweepParts removes the parts that nothing references and that are older than any
// transfer, and the remains of incomplete ones. It returns their number.
func (v *View) SweepParts(ctx context.Context) (int, error) {
	return v.sweepParts(ctx, blob.OrphanAge)
}

func (v *View) sweepParts(ctx context.Context, age time.Duration) (int, error) {
	return v.blobs.SweepParts(ctx, age, func() (*blob.References, error) {
		err := v.Sync(ctx) // includes everything referenced before the listing
		return v.referenced(), err
	})
}
