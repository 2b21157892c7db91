package proctable

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Page returns a page of processes, newest first, and the cursor of the next page;
// zero: there is none. It does not hold the lock of the view meanwhile.
func (t *Table) Page(q *process.Query) (page []process.Summary, next process.ListCursor) {
	var found []*entry
	for _, tree := range t.copyOrder(q.Sandbox == "", !q.Active) {
		found = newest(q, tree, found)
	}
	slices.SortFunc(found, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.at, a.at), strings.Compare(string(b.ID), string(a.ID)))
	})
	if len(found) > q.Limit {
		found = found[:q.Limit]
		last := found[q.Limit-1]
		next = process.ListCursor{At: last.at, ID: last.ID}
	}
	page = make([]process.Summary, len(found))
	for i, e := range found {
		page[i] = e.Summary
	}
	return page, next
}

// newest appends the newest entries of a tree that q selects, one more than its limit.
func newest(q *process.Query, tree *btree.BTreeG[*entry], found []*entry) []*entry {
	from := newestOf(q.Tenant, q.Sandbox)
	if q.After.ID != "" {
		from.at, from.ID = q.After.At, q.After.ID
	}
	most := len(found) + q.Limit + 1
	var s process.Summary // one for all: Keep makes it escape
	tree.Descend(from, func(e *entry) bool {
		if q.Sandbox != "" && e.ID.Sandbox() != q.Sandbox || q.Sandbox == "" && e.Tenant != q.Tenant {
			return false
		}
		s = e.Summary
		if e.Tenant == q.Tenant && e.ID != q.After.ID && q.Keep(&s) {
			found = append(found, e)
		}
		return len(found) < most
	})
	return found
}

// copyOrder returns copies of the trees in the order of tenants or of sandboxes: that of the
// active entries and, if wanted, that of the others.
func (t *Table) copyOrder(byTenant, ended bool) (trees []*btree.BTreeG[*entry]) {
	t.progress.Lock()
	defer t.progress.Unlock()
	sets := []orderPair{t.order.active, t.order.ended}
	if !ended {
		sets = sets[:1]
	}
	for _, set := range sets {
		tree := set.bySandbox
		if byTenant {
			tree = set.byTenant
		}
		trees = append(trees, tree.Copy())
	}
	return trees
}

// List returns the entries of a sandbox ("": of all) for which keep is true, oldest
// first. It calls keep with the view unlocked.
func (t *Table) List(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return list(t.copyOrder(false, true), sbx, keep)
}

// Active is List without those that ended. Its cost does not depend on them.
func (t *Table) Active(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	return list(t.copyOrder(false, false), sbx, keep)
}

func list(trees []*btree.BTreeG[*entry], sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	var found []*entry
	var s process.Summary // one for all: keep makes it escape
	for _, tree := range trees {
		tree.Ascend(oldestOf("", sbx), func(e *entry) bool {
			if sbx != "" && e.ID.Sandbox() != sbx {
				return false
			}
			if s = e.Summary; keep(&s) {
				found = append(found, e)
			}
			return true
		})
	}
	slices.SortFunc(found, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(string(a.ID), string(b.ID)))
	})
	out := make([]process.Summary, len(found))
	for i, e := range found {
		out[i] = e.Summary
	}
	return out
}
