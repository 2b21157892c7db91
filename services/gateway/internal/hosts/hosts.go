package hosts

import (
	"context"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Hosts implements the operations on hosts. Its methods may be called concurrently.
type Hosts struct {
	core *core.Core
}

// New returns Hosts on c. It does no I/O.
func New(c *core.Core) *Hosts {
	return &Hosts{core: c}
}

// All returns all hosts that have or had a lease, by name.
func (hs *Hosts) All(context.Context) []fleet.Host { return hs.core.View.Hosts() }

// Host returns a host's lease as of the view; false if it never had one.
func (hs *Hosts) Host(name string) (fleet.Host, bool) { return hs.core.View.Host(name) }

// host returns a host that has or had a lease, not older than the call.
func (hs *Hosts) host(ctx context.Context, name string) (fleet.Host, error) {
	if _, err := fleet.ParseName(name); err != nil {
		return fleet.Host{}, err
	}
	if err := hs.core.Sync(ctx); err != nil {
		return fleet.Host{}, err
	}
	h, ok := hs.core.View.Host(name)
	if !ok {
		return h, kind.Newf(kind.NotFound, "find host", name, "host '%s' not found", name)
	}
	return h, nil
}
