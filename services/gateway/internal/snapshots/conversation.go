package snapshots

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// ConversationLayers begins the names of the layers with the files of conversations.
const ConversationLayers = "conversation "

// minLayerAge is the age from which a layer may be dropped whose conversation is not known.
const minLayerAge = time.Hour

// CopyLayer has a layer copied to the store, and does not wait for that.
func (ss *Snapshots) CopyLayer(ctx context.Context, id sandbox.SnapshotID) error {
	_, err := ss.core.View.ChangeSnapshot(ctx, id, func(s *sandbox.Snapshot) bool {
		if s.Fits == "" || s.Copy.Wanted || s.Copy.Manifest != "" {
			return false
		}
		s.Copy = sandbox.Copy{Wanted: true}
		return true
	})
	return core.LogError("copy layer", string(id), err)
}

// DropReplaced drops the layers of a name that are older than one that outlives its host, or that no
// other host can use.
func (ss *Snapshots) DropReplaced(ctx context.Context, p core.Principal, name string) error {
	all := ss.core.View.Snapshots(func(s *sandbox.Snapshot) bool { return s.Layer == name && s.Tenant == p.Tenant && !s.Deleted })
	for i := range all { // newest first
		if s := &all[i]; s.Copy.Manifest != "" || s.Fits == "" && ss.core.Reachable(s) {
			return ss.dropAll(ctx, all[i+1:])
		}
	}
	return nil
}

// DropLayers drops the layers whose names have a prefix and that are not kept.
func (ss *Snapshots) DropLayers(ctx context.Context, prefix string, keep func(*sandbox.Snapshot) bool) error {
	return ss.dropAll(ctx, ss.core.View.Snapshots(func(s *sandbox.Snapshot) bool {
		return strings.HasPrefix(s.Layer, prefix) && !s.Deleted && time.Since(s.Taken) > minLayerAge && !keep(s)
	}))
}

func (ss *Snapshots) dropAll(ctx context.Context, all []sandbox.Snapshot) error {
	var failed []error
	for i := range all {
		if err := ss.Drop(ctx, all[i]); err != nil && !kind.Is(err, kind.NotFound) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
