package sandboxes

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/agents"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
	"github.com/millrace/millrace/services/gateway/internal/mounts"
)

// States of a sandbox in responses. A sandbox of ours is placed and configured in one step, so that
// the state configuring does not occur.
const (
	stateCreating  = "creating"
	stateBooting   = "booting"
	stateRunning   = "running"
	statePaused    = "paused" // or pausing, or resuming
	stateStopping  = "stopping"
	stateDestroyed = "destroyed"
)

func stateOf(st *sandbox.State) string {
	switch {
	case st.Over():
		return stateDestroyed
	case st.Phase == sandbox.PhasePlaced:
		return stateBooting
	case st.Begins():
		return stateCreating
	case st.IsRunning():
		return stateRunning
	case st.InPause():
		return statePaused
	}
	return stateStopping
}

// shownAfterEnd is how long a sandbox is shown after its end.
const shownAfterEnd = time.Minute

// shown reports whether clients see a sandbox. One that ended before it ran is hidden unless a client
// ended it: no client has its id.
func (h *Handler) shown(st *sandbox.State) bool {
	switch {
	case st.Request.Build != "" || st.Request.Names() != "":
		return false
	case !st.Over():
		return true
	case st.Started.IsZero() && st.Phase != sandbox.PhaseDestroyed:
		return false
	}
	return h.Now().Sub(st.Ended) < shownAfterEnd
}

// vm is a sandbox in a response.
type vm struct {
	ID          string         `json:"vm_id"`
	State       string         `json:"state"`
	VCPU        int            `json:"vcpu"`
	CPUFraction float64        `json:"cpu_fraction"`
	MemoryMiB   uint32         `json:"memory_mib"`
	RootFS      string         `json:"rootfs"`
	Metadata    map[string]any `json:"metadata"`
	AgentExit   *int32         `json:"agent_exit_code,omitempty"`
	AgentStatus agents.State   `json:"agent_status,omitempty"`
	AgentError  string         `json:"agent_error,omitempty"` // why a failed agent has no exit code
}

func vmOf(st *sandbox.State) vm {
	v := vm{
		ID: vmid.Of(st.ID), State: stateOf(st), VCPU: 1, CPUFraction: 1, MemoryMiB: st.Request.MemoryMiB,
		RootFS: cmp.Or(st.Request.Alias, st.Request.Built, st.Request.Template) + ".ext4", Metadata: metadataOf(st),
	}
	if milli := st.Request.CPUMilli; milli > 0 {
		v.VCPU = int((milli + 999) / 1000)
		v.CPUFraction = math.Round(float64(milli)/float64(v.VCPU)) / 1000
	}
	return v
}

// Names of the platform's own metadata.
const (
	metaUser    = "user_id"
	metaSession = "chat_session_id"
	metaEndUser = "end_user_id"
)

// metadataOf returns the metadata that a client sees. Whatever surface created the sandbox, its
// user is the owner.
func metadataOf(st *sandbox.State) map[string]any {
	out := make(map[string]any, len(st.Request.Metadata)+1)
	for name, value := range st.Request.Metadata {
		if name == mounts.Metadata {
			continue
		}
		out[name] = value
		if slices.Contains(st.Request.JSON, name) {
			out[name] = json.RawMessage(value)
		}
	}
	out[metaUser] = st.Tenant
	return out
}
