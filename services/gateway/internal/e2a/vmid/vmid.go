// Package vmid converts between sandboxes and the ids that clients of e2a see.
package vmid

import (
	"strings"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const prefix = "sbx_"

// Of returns the vm_id of a sandbox.
func Of(id sandbox.ID) string { return prefix + string(id) }

// Parse returns the sandbox that a vm_id names, or the error of one that does not exist. The result
// shares no memory with s.
func Parse(s string) (sandbox.ID, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	id, err := sandbox.ParseID(strings.Clone(rest))
	if !ok || err != nil {
		return "", core.NoSandbox("")
	}
	return id, nil
}
