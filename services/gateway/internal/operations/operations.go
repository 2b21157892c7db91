package operations

import (
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/hosts"
	"github.com/millrace/millrace/services/gateway/internal/storage"
	"github.com/millrace/millrace/services/gateway/internal/webhooks"
)

// Operations are the parts. Each is safe for concurrent use.
type Operations struct {
	Core     *core.Core
	Accounts *accounts.Accounts
	Webhooks *webhooks.Webhooks
	Hosts    *hosts.Hosts
	Storage  *storage.Storage
}

// New returns the parts, which share a Core. It does no I/O. Close releases their streams.
func New(cfg core.Config) *Operations {
	c := core.New(cfg)
	return &Operations{
		Core: c, Accounts: accounts.New(c), Webhooks: webhooks.New(c), Hosts: hosts.New(c), Storage: storage.New(c),
	}
}

// Close ends the streams to sandboxes' ports.
func (o *Operations) Close() { o.Core.Close() }
