package operations

import (
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/bases"
	"github.com/millrace/millrace/services/gateway/internal/builds"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/hosts"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/provision"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
	"github.com/millrace/millrace/services/gateway/internal/storage"
	"github.com/millrace/millrace/services/gateway/internal/templatestore"
	"github.com/millrace/millrace/services/gateway/internal/webhooks"
)

// Operations are the parts. Each is safe for concurrent use.
type Operations struct {
	Core        *core.Core
	Accounts    *accounts.Accounts
	Webhooks    *webhooks.Webhooks
	Hosts       *hosts.Hosts
	Storage     *storage.Storage
	Lifecycle   *lifecycle.Lifecycle
	Procs       *procs.Procs
	Provisioner *provision.Provisioner
	Builds      *builds.Builds
	Bases       *bases.Bases
	Snapshots   *snapshots.Snapshots
	Templates   *templatestore.Store
}

// New returns the parts, which share a Core. It does no I/O. Close releases their streams.
func New(cfg core.Config) *Operations {
	c := core.New(cfg)
	l := lifecycle.New(c)
	ps := procs.New(c, l)
	bs := builds.New(c, l)
	base := bases.New(c, bs)
	ss := snapshots.New(c, l, base)
	return &Operations{
		Core: c, Accounts: accounts.New(c), Webhooks: webhooks.New(c), Hosts: hosts.New(c), Storage: storage.New(c),
		Lifecycle: l, Procs: ps, Provisioner: provision.New(c, l, ps, ss),
		Builds: bs, Bases: base, Snapshots: ss, Templates: templatestore.New(c, base, bs, ss),
	}
}

// Close ends the streams to sandboxes' ports.
func (o *Operations) Close() { o.Core.Close() }
