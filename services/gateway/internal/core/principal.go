package core

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Principal is the authenticated caller.
type Principal struct {
	Tenant  string           // never empty
	Sandbox sandbox.ID       // sandbox to which a sandbox token is limited; empty: no limit
	Volume  sandbox.VolumeID // volume to which a volume token is limited; empty: no limit

	Onlooker bool        // it uses a link to a terminal, which permits reading only; Sandbox is set
	Process  process.ID  // process to which a link is limited; empty: all of the sandbox
	Until    process.Seq // last event that a link to a process shows; 0: no limit
}

// MayRead reports whether p may read a process of a sandbox that it may access.
func (p Principal) MayRead(id process.ID) bool { return p.Process == "" || p.Process == id }

// MayAccess reports whether p may access st.
func (p Principal) MayAccess(st *sandbox.State) bool {
	return p.Tenant != "" && p.Volume == "" && p.Tenant == st.Tenant && (p.Sandbox == "" || p.Sandbox == st.ID)
}

// MayCreate returns Denied for a sandbox's token.
func (p Principal) MayCreate() error {
	if p.Tenant == "" || p.Sandbox != "" {
		return kind.New(kind.Denied, "create sandbox", "", "a sandbox's token cannot create sandboxes")
	}
	return nil
}

// MayAccessVolume reports whether p may access v, which exists.
func (p Principal) MayAccessVolume(v *sandbox.Volume) bool {
	return p.Tenant == v.Tenant && p.Sandbox == "" && (p.Volume == "" || p.Volume == v.ID) && v.Made && !v.Deleted
}

// RequireAPIKey returns Denied for a token that is limited to one sandbox or volume.
func (p Principal) RequireAPIKey(op string) error {
	if p.Tenant == "" || p.Sandbox != "" || p.Volume != "" {
		return kind.New(kind.Denied, op, "", "an API key is required")
	}
	return nil
}
