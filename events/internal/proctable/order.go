package proctable

import (
	"math"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// order is the entries of active processes in the two orders of lists: those of a tenant or
// sandbox, oldest first. A list is a range of a tree. The lock of the view guards them.
// Entries do not change, so that a copy of a tree is read without the lock.
type order struct{ byTenant, bySandbox *btree.BTreeG[*entry] }

func newOrder() order {
	unlocked := btree.Options{NoLocks: true}
	return order{btree.NewBTreeGOptions(tenantLess, unlocked), btree.NewBTreeGOptions(sandboxLess, unlocked)}
}

func tenantLess(a, b *entry) bool {
	if a.Tenant != b.Tenant {
		return a.Tenant < b.Tenant
	}
	return older(a, b)
}

func sandboxLess(a, b *entry) bool {
	if c := strings.Compare(string(a.ID.Sandbox()), string(b.ID.Sandbox())); c != 0 {
		return c < 0
	}
	return older(a, b)
}

func older(a, b *entry) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.ID < b.ID
}

func (o *order) add(e *entry) {
	o.byTenant.Set(e)
	o.bySandbox.Set(e)
}

func (o *order) remove(e *entry) {
	o.byTenant.Delete(e)
	o.bySandbox.Delete(e)
}

// has reports whether a sandbox has entries.
func (o *order) has(sbx sandbox.ID) bool {
	found := false
	o.bySandbox.Ascend(oldestOf("", sbx), func(e *entry) bool {
		found = e.ID.Sandbox() == sbx
		return false
	})
	return found
}

// Tokens before and after those of all processes.
const (
	tokenBefore = "00000000000000000000000000"
	tokenAfter  = "~~~~~~~~~~~~~~~~~~~~~~~~~~"
)

// oldestOf and newestOf return entries before and after all those of a tenant and a sandbox.
func oldestOf(tenant string, sbx sandbox.ID) *entry {
	return &entry{Summary: process.Summary{ID: process.IDOf(tokenBefore, sbx), Tenant: tenant}, at: math.MinInt64}
}

func newestOf(tenant string, sbx sandbox.ID) *entry {
	return &entry{Summary: process.Summary{ID: process.IDOf(tokenAfter, sbx), Tenant: tenant}, at: math.MaxInt64}
}
