package proctable

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// batch is how many finished processes a list takes from the view at a time.
const batch = 256

// Page returns a page of processes, newest first, and the cursor of the next page;
// zero: there is none. It does not hold the lock of the view meanwhile.
func (t *Table) Page(q *process.Query) (page []process.Summary, next process.ListCursor) {
	tree := t.copyOrder(q.Sandbox == "")
	page = newest(q, tree)
	if !q.Active {
		page = t.newestFinished(q, page)
	}
	slices.SortFunc(page, func(a, b process.Summary) int {
		return cmp.Or(cmp.Compare(b.ListedAt(), a.ListedAt()), strings.Compare(string(b.ID), string(a.ID)))
	})
	if len(page) > q.Limit {
		page = page[:q.Limit]
		last := &page[q.Limit-1]
		next = process.ListCursor{At: last.ListedAt(), ID: last.ID}
	}
	return page, next
}

// newest returns the newest active processes that q selects, at most one more than its limit.
func newest(q *process.Query, tree *btree.BTreeG[*entry]) (found []process.Summary) {
	from := newestOf(q.Tenant, q.Sandbox)
	if q.After.ID != "" {
		from.at, from.ID = q.After.At, q.After.ID
	}
	var s process.Summary // one for all: Keep makes it escape
	tree.Descend(from, func(e *entry) bool {
		if q.Sandbox != "" && e.ID.Sandbox() != q.Sandbox || q.Sandbox == "" && e.Tenant != q.Tenant {
			return false
		}
		s = e.Summary
		if e.Tenant == q.Tenant && e.ID != q.After.ID && q.Keep(&s) {
			found = append(found, s)
		}
		return len(found) <= q.Limit
	})
	return found
}

// newestFinished appends the newest processes that ended and that q selects, at most one more than
// its limit. It skips those that ended after they were found active.
func (t *Table) newestFinished(q *process.Query, found []process.Summary) []process.Summary {
	known := idsOf(found)
	most := len(found) + q.Limit + 1
	t.eachFinished(min(q.Limit+1, batch), q.After, func(from process.ListCursor, n int, dst []finished.Item) []finished.Item {
		return t.finished.Newest(dst, q.Tenant, q.Sandbox, from, n)
	}, func(s *process.Summary) bool {
		if s.Tenant == q.Tenant && !known[s.ID] && q.Keep(s) {
			found = append(found, *s)
		}
		return len(found) < most
	})
	return found
}

func idsOf(all []process.Summary) map[process.ID]bool {
	ids := make(map[process.ID]bool, len(all))
	for i := range all {
		ids[all[i].ID] = true
	}
	return ids
}

// eachFinished calls visit for the processes that next returns from a position on, until visit
// returns false, and must not retain its argument. It calls next with the view locked, at first for the given number of processes.
func (t *Table) eachFinished(n int, from process.ListCursor, next func(process.ListCursor, int, []finished.Item) []finished.Item, visit func(*process.Summary) bool) {
	var d finished.Decoder
	var items []finished.Item
	var s process.Summary // one for all: visit makes it escape
	for ; ; n = batch {
		t.progress.Lock()
		items = next(from, n, items[:0])
		t.progress.Unlock()
		for i := range items {
			if d.Decode(&items[i], &s); !visit(&s) {
				return
			}
		}
		if len(items) < n {
			return
		}
		from = items[len(items)-1].Cursor()
	}
}

// copyOrder returns a copy of the tree of active processes in the order of tenants or of sandboxes.
func (t *Table) copyOrder(byTenant bool) *btree.BTreeG[*entry] {
	t.progress.Lock()
	defer t.progress.Unlock()
	if byTenant {
		return t.order.byTenant.Copy()
	}
	return t.order.bySandbox.Copy()
}

// List returns the entries of a sandbox ("": of all) for which keep is true, oldest
// first. It calls keep with the view unlocked.
func (t *Table) List(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	current := listActive(t.copyOrder(false), sbx, keep)
	known, found := idsOf(current), []process.Summary{}
	t.eachFinished(batch, process.ListCursor{}, func(from process.ListCursor, n int, dst []finished.Item) []finished.Item {
		return t.finished.Oldest(dst, sbx, from, n)
	}, func(s *process.Summary) bool {
		if !known[s.ID] && keep(s) {
			found = append(found, *s)
		}
		return true
	})
	found = append(found, current...)
	sortOldest(found)
	return found
}

// Active is List without those that ended. Its cost does not depend on them.
func (t *Table) Active(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	found := listActive(t.copyOrder(false), sbx, keep)
	sortOldest(found)
	return found
}

func listActive(tree *btree.BTreeG[*entry], sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary {
	found := []process.Summary{}
	var s process.Summary // one for all: keep makes it escape
	tree.Ascend(oldestOf("", sbx), func(e *entry) bool {
		if sbx != "" && e.ID.Sandbox() != sbx {
			return false
		}
		if s = e.Summary; keep(&s) {
			found = append(found, s)
		}
		return true
	})
	return found
}

func sortOldest(all []process.Summary) {
	older := func(a, b process.Summary) int {
		return cmp.Or(cmp.Compare(a.ListedAt(), b.ListedAt()), strings.Compare(string(a.ID), string(b.ID)))
	}
	if !slices.IsSortedFunc(all, older) { // those of one sandbox usually are
		slices.SortFunc(all, older)
	}
}
