package proctable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

func every(*process.Summary) bool { return true }

// catalog is a table, and what its entries were made from.
type catalog struct {
	*Table
	rev  uint64
	want map[process.ID]process.Summary
}

func newCatalog() *catalog {
	return &catalog{Table: New(nil, fold.NewProgress(nil), time.Hour, nil), want: map[process.ID]process.Summary{}}
}

func (c *catalog) put(t testing.TB, s process.Summary) {
	t.Helper()
	data, err := codec.EncodeSummary(&s)
	if err == nil {
		c.rev++
		err = c.Apply(store.Message{Subject: subject(s.Host, s.ID), Seq: c.rev, Data: data})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.want[s.ID] = s
}

// selected returns the processes that q selects on any page, newest first.
func (c *catalog) selected(q *process.Query) (ids []process.ID) {
	var all []process.Summary
	for _, s := range c.want {
		if s.Tenant == q.Tenant && (q.Sandbox == "" || s.ID.Sandbox() == q.Sandbox) && (!q.Active || s.Active()) && q.Keep(&s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b process.Summary) int {
		if a.ListedAt() != b.ListedAt() {
			return int(min(1, max(-1, b.ListedAt()-a.ListedAt())))
		}
		return -compareIDs(a.ID, b.ID)
	})
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

func compareIDs(a, b process.ID) int {
	if a < b {
		return -1
	}
	return 1
}

// Whatever is selected, the pages of a list are the list.
func TestPagesAreTheList(t *testing.T) {
	c, r := newCatalog(), rand.New(rand.NewPCG(1, 2))
	boxes := []sandbox.ID{"aa", "ab", "b", sandbox.NewID()}
	for range 3000 {
		sbx := r.IntN(len(boxes))
		s := process.Summary{ID: process.NewID(boxes[sbx]), Tenant: []string{"one", "two", "on", "one"}[sbx], Host: "h", Spec: process.Spec{Cmd: "true"}}
		c.put(t, s)
		if r.IntN(20) > 0 {
			s.Started, s.PID = time.Unix(1+int64(r.IntN(1000)), 0), uint32(r.IntN(50))
			c.put(t, s)
		}
		if r.IntN(10) > 0 {
			s.Ended, s.Exit = time.Unix(2000, 0), &process.Exit{Cause: process.CauseExited}
			c.put(t, s)
		}
	}
	odd := func(s *process.Summary) bool { return s.PID%7 == 3 }
	for _, q := range []process.Query{
		{Tenant: "one", Limit: 100}, {Tenant: "two", Limit: 7}, {Tenant: "three", Limit: 5}, {Tenant: "one", Limit: 3, Keep: odd}, {Tenant: "one", Limit: 9, Active: true},
		{Tenant: "one", Sandbox: "aa", Limit: 1}, {Tenant: "two", Sandbox: "aa", Limit: 10}, {Tenant: "one", Sandbox: boxes[3], Limit: 1000, Active: true},
	} {
		if q.Keep == nil {
			q.Keep = every
		}
		want := c.selected(&q)
		var got []process.ID
		for {
			page, next := c.Page(&q)
			for i := range page {
				got = append(got, page[i].ID)
			}
			if q.After = next; next.ID == "" {
				break
			}
			if len(page) != q.Limit {
				t.Fatalf("%+v: a page of %d before the last one", q, len(page))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d processes, want %d, or another order", q, len(got), len(want))
		}
	}
	for _, sbx := range []sandbox.ID{"", "aa"} {
		active := c.Active(sbx, every)
		want := c.List(sbx, (*process.Summary).Active)
		if fmt.Sprint(active) != fmt.Sprint(want) || len(want) == 0 {
			t.Errorf("%d active processes of %q, want %d", len(active), sbx, len(want))
		}
	}
}

// A client that reads pages meets each process once that it could meet, whatever starts and ends
// meanwhile.
func TestPagesStayTheSameWhileProcessesChange(t *testing.T) {
	c := newCatalog()
	starting := process.Summary{ID: process.NewID("a"), Tenant: "t", Host: "h"}
	c.put(t, starting)
	for i := range 10 {
		c.put(t, process.Summary{ID: process.NewID("a"), Tenant: "t", Host: "h", PID: 1, Started: time.Unix(1+int64(i), 0)})
	}
	q := process.Query{Tenant: "t", Limit: 2, Keep: every}
	met := map[process.ID]int{}
	for n := 0; ; n++ {
		page, next := c.Page(&q)
		for i := range page {
			met[page[i].ID]++
		}
		if q.After = next; next.ID == "" {
			break
		}
		switch last := c.want[next.ID]; n {
		case 0:
			starting.Started, starting.PID = time.Unix(100, 0), 7
			c.put(t, starting)
		case 1: // the process of the cursor ends, and is dropped
			last.Ended, last.Exit = time.Unix(50, 0), &process.Exit{}
			c.put(t, last)
		case 2:
			c.finished.Remove(last.ID)
		case 3:
			c.put(t, process.Summary{ID: process.NewID("a"), Tenant: "t", Host: "h", PID: 1, Started: time.Unix(200, 0)})
		}
	}
	if len(met) != 11 || met[starting.ID] != 1 {
		t.Errorf("met %v, want each of 11 once", met)
	}
	for id, n := range met {
		if n != 1 {
			t.Errorf("met %s %d times", id, n)
		}
	}
}

// An ended process that started long ago is dropped, whichever tenant it belongs to; a running one
// stays.
func TestForgetDropsWhatEndedBefore(t *testing.T) {
	c := newCatalog()
	at := func(tenant string, started, ended int64) process.ID {
		s := process.Summary{ID: process.NewID(sandbox.ID("s" + tenant)), Tenant: tenant, Host: "h", PID: 1, Started: time.Unix(started, 0)}
		if ended != 0 {
			s.Ended, s.Exit = time.Unix(ended, 0), &process.Exit{}
		}
		c.put(t, s)
		return s.ID
	}
	old := []process.ID{at("a", 1, 2), at("b", 1, 9), at("c", 9, 9), at("b", 2, 3)}
	kept := []process.ID{at("a", 1, 0), at("a", 1, 10), at("b", 11, 12), at("d", 1, 11)}
	c.Forget(time.Unix(10, 0))
	for _, id := range old {
		if _, _, ok := c.Get(id); ok {
			t.Errorf("%s is still there", id)
		}
	}
	for _, id := range kept {
		if _, _, ok := c.Get(id); !ok {
			t.Errorf("%s was dropped", id)
		}
	}
	if c.Has("sc") || !c.Has("sd") || len(c.List("", every)) != len(kept) {
		t.Errorf("%d processes are listed, want %d", len(c.List("", every)), len(kept))
	}
}
