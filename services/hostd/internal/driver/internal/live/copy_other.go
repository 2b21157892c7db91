//go:build !linux

package live

import (
	"context"

	"github.com/millrace/millrace/events/kind"
)

// Copy has the options of CopyTree.
type Copy struct{}

// CopyTree returns Unimplemented: only Linux can stop a sandbox, so that other systems
// have no snapshots.
func CopyTree(_ context.Context, from, _ string, _ Copy) error {
	return kind.New(kind.Unimplemented, "copy", from, "file snapshots are not supported on this system")
}
