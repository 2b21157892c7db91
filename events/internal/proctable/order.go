package proctable

import (
	"math"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// order is the entries of the catalog in the order of lists: those of a tenant or
// sandbox, oldest first. A list is a range of its trees. The lock of the view guards them.
// Entries do not change, so that a copy of a tree is read without the lock.
type order struct{ ended, active orderPair }

// orderPair is one set of entries in two orders.
type orderPair struct{ byTenant, bySandbox *btree.BTreeG[*entry] }

func newOrder() order { return order{newOrderPair(), newOrderPair()} }

func newOrderPair() orderPair {
	unlocked := btree.Options{NoLocks: true}
	return orderPair{btree.NewBTreeGOptions(tenantLess, unlocked), btree.NewBTreeGOptions(sandboxLess, unlocked)}
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

// of returns the trees that an entry belongs to.
func (o *order) of(e *entry) orderPair {
	if e.Active() {
		return o.active
	}
	return o.ended
}

// replace adds an entry instead of another one; nil: none.
func (o *order) replace(was, e *entry) {
	if was != nil && (was.at != e.at || was.Active() != e.Active() || was.Tenant != e.Tenant) {
		o.remove(was)
	}
	to := o.of(e)
	to.byTenant.Set(e)
	to.bySandbox.Set(e)
}

func (o *order) remove(e *entry) {
	from := o.of(e)
	from.byTenant.Delete(e)
	from.bySandbox.Delete(e)
}

// has reports whether a sandbox has entries.
func (o *order) has(sbx sandbox.ID) bool {
	found := false
	for _, set := range []orderPair{o.active, o.ended} {
		set.bySandbox.Ascend(oldestOf("", sbx), func(e *entry) bool {
			found = found || e.ID.Sandbox() == sbx
			return false
		})
	}
	return found
}

// nextTenant returns the tenant after another one (nil: the first) that has processes that
// ended.
func (o *order) nextTenant(after *string) (tenant string, ok bool) {
	from := oldestOf("", "")
	if after != nil {
		from = newestOf(*after, "")
	}
	o.ended.byTenant.Ascend(from, func(e *entry) bool {
		tenant, ok = e.Tenant, true
		return false
	})
	return tenant, ok
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
