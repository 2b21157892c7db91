package hostd

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// copyWait bounds the wait of a sandbox for a copy that another host makes.
const copyWait = 5 * time.Minute

// fit returns the compatibility key of a driver here for a snapshot. A host can use the snapshot
// if this key equals that of the driver that made it.
func (h *host) fit(s *sandbox.Snapshot, o *drivers.Offer) string {
	l := fleet.Lease{Drivers: []string{o.Name()}, Fits: []string{o.Caps.Fits}, FileFits: []string{o.Caps.FileFits}, System: h.system, CPU: h.cpu}
	return l.Fit(o.Name(), fleet.Needs{System: template.IsHost(s.Template), CPU: s.Memory})
}

// canUse reports whether any driver of this host can use a snapshot.
func (h *host) canUse(s *sandbox.Snapshot) bool {
	return s.Fits != "" && slices.ContainsFunc(h.drivers.Offers(), func(o drivers.Offer) bool { return h.fit(s, &o) == s.Fits })
}

// ownSnapshot returns the directory of a snapshot that was made here, unless it is the cache's by
// now, as one with a copy in the store may be.
func (h *host) ownSnapshot(s *sandbox.Snapshot) (dir string, ok bool) {
	if s.Host != h.cfg.Name {
		return "", false
	}
	dir = h.snapshotDir(s.ID)
	_, err := os.Stat(dir)
	return dir, err == nil
}

// ensureSnapshot makes the snapshot that the sandbox is based on available on this host and
// returns its directory; empty without a snapshot. Errors: NotFound for a deleted snapshot,
// Precondition for one that this host cannot use, Unavailable if no host stores a copy of it, and
// those of templates.Cache.Get.
func (sb *hostSandbox) ensureSnapshot(ctx context.Context) (string, error) {
	if sb.req.From == "" {
		return "", nil
	}
	h := sb.h
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	ctx, unwanted := sb.untilStop(ctx)
	defer unwanted()
	for mended := false; ; {
		s, ok := h.view.Snapshot(sb.req.From)
		if !ok || s.Deleted {
			return "", kind.New(kind.NotFound, "create", string(sb.req.From), "the snapshot does not exist any more")
		}
		o := sb.offer(ctx)
		have := h.fit(&s, &o)
		fits := s.Fits != "" && s.Fits == have
		h.originMu.Lock() // serializes with giveToCache, which sees the sandbox
		dir, ok := h.ownSnapshot(&s)
		h.originMu.Unlock()
		if !fits && !(ok && s.Driver == sb.driver.Name()) {
			return "", kind.Newf(kind.Precondition, "create", string(s.ID), "the snapshot was made on host %s by driver %s for %q, this host has %q", s.Host, s.Driver, s.Fits, have)
		}
		if ok {
			return dir, nil
		}
		if s.Copy.Manifest == "" || s.Copy.Wanted {
			if err := h.askForCopy(ctx, &s); err != nil {
				return "", err
			}
			continue
		}
		tree, err := h.templates.Get(ctx, []byte(s.Copy.Manifest))
		if err == nil {
			sb.snapshotTree = tree
			return tree.Root, nil
		}
		// A damaged or lost copy is replaced once, by a host that has the files.
		if mended || !kind.Is(err, kind.Invalid) && !kind.Is(err, kind.NotFound) {
			return "", err
		}
		mended = true
		h.slog.Warn("copy of a snapshot is damaged, requesting another", "snapshot", s.ID, "err", err)
		if err := h.doubt(ctx, &s); err != nil {
			return "", err
		}
	}
}

// doubt requests a new copy of a snapshot in place of a damaged one.
func (h *host) doubt(ctx context.Context, s *sandbox.Snapshot) error {
	_, err := h.view.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		same := now.Copy.Manifest == s.Copy.Manifest && !now.Copy.Wanted
		now.Copy.Wanted = true
		return same
	})
	return err
}

// askForCopy waits until a host has stored a snapshot, or cannot.
func (h *host) askForCopy(ctx context.Context, s *sandbox.Snapshot) error {
	asked, err := h.view.ChangeSnapshot(ctx, s.ID, func(now *sandbox.Snapshot) bool {
		if now.Copy.Wanted || now.Copy.Manifest != "" {
			return false
		}
		now.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	if err != nil {
		return err
	}
	changed, stop := h.view.Changes()
	defer stop()
	for {
		now, ok := h.view.Snapshot(s.ID)
		switch {
		case !ok || now.Deleted || now.Rev >= asked.Rev && !now.Copy.Wanted:
			return now.Copy.Err("create", string(s.ID))
		case !h.availableElsewhere(&now):
			return kind.Newf(kind.Unavailable, "create", string(s.ID), "the snapshot is on host %s only, which does not answer", s.Host)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return kind.Newf(kind.Unavailable, "create", string(s.ID), "host %s did not copy the snapshot in time", s.Host)
		}
	}
}

// availableElsewhere reports whether another host that is alive has a snapshot's files.
func (h *host) availableElsewhere(s *sandbox.Snapshot) bool {
	id := copyID(&s.Copy)
	for _, other := range h.view.Hosts() {
		if !other.Alive(time.Now()) {
			continue
		}
		if other.Host == s.Host || slices.Contains(other.Templates, string(id)) {
			return true
		}
	}
	return false
}

// holdSnapshot takes a reference to the copy that a sandbox of a previous run is based on.
func (sb *hostSandbox) holdSnapshot() {
	s, ok := sb.h.view.Snapshot(sb.req.From)
	if !ok {
		return
	}
	if _, own := sb.h.ownSnapshot(&s); own {
		return
	}
	sb.snapshotTree, _ = sb.h.holdCopy(&s)
}

// holdCopy takes a reference to the copy of a snapshot in the cache, if there is one.
func (h *host) holdCopy(s *sandbox.Snapshot) (*templates.Tree, bool) {
	return h.templates.Hold(copyID(&s.Copy))
}

// copyID returns the cache's name of a copy's tree; without a copy, the cache has no such tree.
func copyID(c *sandbox.Copy) template.ID {
	return template.ID(template.SumOf([]byte(c.Manifest)))
}
