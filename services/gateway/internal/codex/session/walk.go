package session

import (
	"context"
	"math"

	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// Limits of a walk, whatever the client asks for.
const (
	walkDepth       = 128
	walkDirectories = 1 << 14
	walkEntries     = 1 << 15
	walkErrors      = 1 << 10
	walkBytes       = 8 << 20 // of all paths
)

// walk serves fs/walk.
func walk(ctx context.Context, f Files, root protocol.Path, opt *protocol.WalkOptions) (protocol.Walked, error) {
	out := protocol.Walked{Entries: []protocol.WalkEntry{}, Errors: []protocol.WalkError{}}
	o := &WalkOptions{
		Depth: limit(opt.MaxDepth, walkDepth), Directories: limit(opt.MaxDirectories, walkDirectories), Entries: limit(opt.MaxEntries, walkEntries),
		Follow: opt.FollowLinks, SkipHidden: opt.PruneHiddenNames,
	}
	size := 0
	err := f.Walk(ctx, root.Name, o, func(found Found) bool {
		size += len(found.Path) + len(found.Failed)
		switch {
		case found.Truncated, size > walkBytes, len(out.Errors) == walkErrors, len(out.Entries) == walkEntries:
			out.Truncated = true
			return false
		case found.Failed != "":
			out.Errors = append(out.Errors, protocol.WalkError{Path: fileuri.Format(found.Path, root.Form), Message: found.Failed})
			return true
		}
		kindOf := "file"
		if found.Dir {
			kindOf = "directory"
		}
		out.Entries = append(out.Entries, protocol.WalkEntry{Path: fileuri.Format(found.Path, root.Form), Kind: kindOf})
		return true
	})
	return out, err
}

func limit(n, most uint64) uint32 { return uint32(min(n, most, math.MaxUint32)) }
