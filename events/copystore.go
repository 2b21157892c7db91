package events

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// CopyStore is the store of the parts of copies of hosts' files; see PutPart.
type CopyStore struct{ l *blobs }

// CopyStore returns the store of copies.
func (l *blobs) CopyStore() CopyStore { return CopyStore{l} }

func copyName(sum template.Sum) string { return copyPrefix + string(sum) }

// Put stores a part. It leaves an existing part alone unless replace is set. It returns
// Exhausted if the store is full.
func (k CopyStore) Put(ctx context.Context, sum template.Sum, packed []byte, replace bool) error {
	return k.l.putPart(ctx, copyName(sum), packed, replace)
}

// Has reports whether a part is stored.
func (k CopyStore) Has(ctx context.Context, sum template.Sum) (bool, error) {
	return k.l.hasPart(ctx, copyName(sum), freshPart)
}

// Part reads a part. The caller must check its sum. Errors are those of Log.Part.
func (k CopyStore) Part(ctx context.Context, sum template.Sum) ([]byte, error) {
	return k.l.getPart(ctx, copyName(sum))
}

const (
	// freshPart is the age from which a part is refreshed when a caller relies on it.
	freshPart = 10 * time.Minute
	// orphanAge is the age from which a part without a reference is removed: longer than
	// storing a copy may take.
	orphanAge = 6 * time.Hour
)

// used returns the names of all referenced parts.
func (v *View) used() map[string]bool {
	used := make(map[string]bool)
	var copies []string
	v.mu.Lock()
	for _, t := range v.templates.docs {
		for _, sum := range t.Manifest.Parts {
			used[string(sum)] = true
		}
	}
	for _, s := range v.snapshots.docs {
		if !s.Deleted {
			copies = append(copies, s.Copy.Manifest)
		}
	}
	v.mu.Unlock()
	for _, raw := range copies {
		if m, _, err := template.Decode([]byte(raw)); err == nil { // otherwise there is no copy
			for _, sum := range m.Parts {
				used[copyName(sum)] = true
			}
		}
	}
	return used
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
	used := v.used()
	for _, sum := range m.Parts {
		if name := copyName(sum); !used[name] {
			used[name] = true // stored once, but perhaps listed more than once
			if err := v.l.removePart(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// SweepParts removes the parts that nothing references and that are older than any
// transfer, and the remains of incomplete ones. It returns their number.
func (v *View) SweepParts(ctx context.Context) (int, error) {
	n, err := v.sweepParts(ctx, orphanAge)
	if err != nil {
		err = unavailable("sweep", bucketTemplates, err)
	}
	return n, err
}

func (v *View) sweepParts(ctx context.Context, age time.Duration) (int, error) {
	store, err := v.l.js.ObjectStore(ctx, bucketTemplates)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	// Read chunks before names: parts stored meanwhile have a name or are young.
	chunks, err := v.l.partSubjects(ctx)
	if err != nil {
		return 0, err
	}
	all, err := store.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, err
	}
	if err := v.Sync(ctx); err != nil { // includes everything referenced before the listing
		return 0, err
	}
	used, n := v.used(), 0
	for _, o := range all {
		delete(chunks, chunkSubject(o.NUID))
		if used[o.Name] && !o.Deleted || time.Since(o.ModTime) < age {
			continue
		}
		gone, err := v.l.sweepPart(ctx, store, o.Name, age)
		if err != nil {
			return n, err
		}
		n += gone
	}
	for subject := range chunks {
		gone, err := v.l.sweepChunks(ctx, subject, age)
		if err != nil {
			return n, err
		}
		n += gone
	}
	return n, nil
}

// sweepPart removes a part unless it was refreshed since it was listed.
func (l *blobs) sweepPart(ctx context.Context, store jetstream.ObjectStore, name string, age time.Duration) (int, error) {
	now, err := store.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return 0, nil
	case err != nil || time.Since(now.ModTime) < age:
		return 0, err
	}
	return 1, l.purgePart(ctx, now)
}

// sweepChunks removes the bytes of a part that never got its name.
func (l *blobs) sweepChunks(ctx context.Context, subject string, age time.Duration) (int, error) {
	s, err := l.js.Stream(ctx, partStream)
	if err != nil {
		return 0, err
	}
	last, err := s.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil || time.Since(last.Time) < age:
		return 0, err
	}
	return 1, s.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// Layout of an object store's stream (NATS, ADR-20).
const (
	partStream = "OBJ_" + bucketTemplates
	partMeta   = "$O." + bucketTemplates + ".M."
	partChunks = "$O." + bucketTemplates + ".C."
)

func chunkSubject(nuid string) string { return partChunks + nuid }

// purgePart removes a part for good. An object store's own Delete stores a marker, which
// fails in a full store. A crash in between leaves bytes without a name.
func (l *blobs) purgePart(ctx context.Context, o *jetstream.ObjectInfo) error {
	s, err := l.js.Stream(ctx, partStream)
	if err != nil {
		return err
	}
	name := base64.URLEncoding.EncodeToString([]byte(o.Name))
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(partMeta+name)); err != nil || o.NUID == "" {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(o.NUID)))
}

// partSubjects returns the subjects of the bytes of all parts.
func (l *blobs) partSubjects(ctx context.Context) (map[string]uint64, error) {
	s, err := l.js.Stream(ctx, partStream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(partChunks+">"))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}
