package bundles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

var alice = core.Principal{Tenant: "alice"}

func open(t *testing.T, srv *eventstest.Server) (*Bundles, *events.Log) {
	t.Helper()
	log := eventstest.Open(t, srv)
	c := core.New(core.Config{Log: log, Sealer: eventstest.Ring(t, log)})
	t.Cleanup(c.Close)
	return New(c, log.Bundles()), log
}

func values(n int, value string) map[string]string {
	out := make(map[string]string, n)
	for i := range n {
		out[fmt.Sprintf("KEY_%02d", i)] = value
	}
	return out
}

func create(t *testing.T, b *Bundles, name string, v map[string]string) {
	t.Helper()
	if _, err := b.Create(t.Context(), alice, name, v); err != nil {
		t.Fatal(err)
	}
}

// E-310, E-319, E-320, E-325, E-327: all values, of a full bundle, in one generation after the other.
func TestBundles(t *testing.T) {
	b, log := open(t, eventstest.Start(t))
	big := strings.Repeat("x", bundle.MaxValue)
	create(t, b, "full", values(bundle.MaxKeys, big))
	create(t, b, "other", map[string]string{"LLM_API_KEY": "", "B": "b"})
	got, err := b.Resolve(t.Context(), "alice", []string{"full", "other"})
	if err != nil || len(got.Values) != 52 || got.Values["KEY_49"] != big || got.Values["B"] != "b" || len(got.Heads) != 2 {
		t.Fatalf("%d values, %v", len(got.Values), err)
	}
	head, err := b.Replace(t.Context(), alice, "full", map[string]string{"KEY_07": "new", "ADDED": "a"})
	if err != nil || len(head.Keys) != 2 || !head.Rotated.After(head.Created) {
		t.Fatalf("%+v, %v", head, err)
	}
	again, err := b.Resolve(t.Context(), "alice", []string{"full"})
	if err != nil || len(again.Values) != 2 || again.Values["KEY_07"] != "new" || again.Values["ADDED"] != "a" || again.Heads[0].Generation == got.Heads[0].Generation {
		t.Errorf("%v, %v", again, err)
	}
	gone := func(g bundle.Generation) {
		t.Helper()
		if _, ok, err := log.Bundles().Value(t.Context(), "alice", g, 0); ok || err != nil {
			t.Errorf("values of an earlier generation are left: %v", err)
		}
	}
	gone(got.Heads[0].Generation)
	if err := b.Delete(t.Context(), alice, "full"); err != nil {
		t.Fatal(err)
	}
	gone(again.Heads[0].Generation)
	if err := b.Delete(t.Context(), alice, "full"); !kind.Is(err, kind.NotFound) {
		t.Errorf("deleted again: %v", err)
	}
	for _, names := range [][]string{{"full"}, {"other", "none"}, {"No Name"}} {
		if _, err := b.Resolve(t.Context(), "alice", names); !kind.Is(err, kind.NotFound) {
			t.Errorf("%v: %v", names, err)
		}
	}
	if _, err := b.Resolve(t.Context(), "bob", []string{"other"}); !kind.Is(err, kind.NotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if got, err := b.Resolve(t.Context(), "alice", nil); err != nil || len(got.Values) != 0 {
		t.Errorf("no bundles: %v", err)
	}
}

// E-315, E-316: whichever gateways serve them, one of concurrent creations of a name succeeds, and 50
// of all succeed.
func TestConcurrentCreations(t *testing.T) {
	srv := eventstest.Start(t)
	one, _ := open(t, srv)
	two, _ := open(t, srv)
	var made, exists, full atomic.Int32
	count := func(b *Bundles, name string) {
		switch _, err := b.Create(t.Context(), alice, name, map[string]string{"A": "b"}); {
		case err == nil:
			made.Add(1)
		case kind.Is(err, kind.Conflict):
			exists.Add(1)
		case kind.Is(err, kind.Throttled):
			full.Add(1)
		default:
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for i := range 48 {
		all.Go(func() { count([]*Bundles{one, two}[i%2], fmt.Sprint("b", i)) })
	}
	all.Wait()
	if made.Load() != 48 {
		t.Fatalf("%d of 48 were made", made.Load())
	}
	made.Store(0)
	for i := range 12 {
		all.Go(func() { count([]*Bundles{one, two}[i%2], fmt.Sprint("more", i/2)) })
	}
	all.Wait()
	heads, err := one.List(t.Context(), alice)
	if made.Load() != 2 || exists.Load()+full.Load() != 10 || len(heads) != 50 || err != nil {
		t.Errorf("%d made, %d exist, %d beyond the limit; %d bundles, %v", made.Load(), exists.Load(), full.Load(), len(heads), err)
	}
}

// A reader sees all values of one generation, while another gateway replaces them.
func TestReadersSeeOneGeneration(t *testing.T) {
	srv := eventstest.Start(t)
	writer, _ := open(t, srv)
	reader, _ := open(t, srv)
	create(t, writer, "b", values(20, "0"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			if _, err := writer.Replace(t.Context(), alice, "b", values(20-i%3, fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
	}()
	for end := false; !end; {
		select {
		case <-done:
			end = true
		default:
		}
		got, err := reader.Resolve(t.Context(), "alice", []string{"b"})
		if err != nil {
			t.Fatal(err)
		}
		for key, v := range got.Values {
			if v != got.Values["KEY_00"] {
				t.Fatalf("%s is of generation %s, KEY_00 of %s", key, v, got.Values["KEY_00"])
			}
		}
	}
}

// dying is a store whose gateway dies at a step of a change.
type dying struct {
	Store
	step func(string) error
}

var errDied = errors.New("the gateway died")

func (d dying) PutValue(ctx context.Context, tenant string, g bundle.Generation, i int, v bundle.Value) error {
	if err := d.step("value"); err != nil && i > 0 {
		return err
	}
	return d.Store.PutValue(ctx, tenant, g, i, v)
}

func (d dying) Append(ctx context.Context, from *bundle.State, b bundle.Body) (next bundle.State, was bundle.Head, err error) {
	if err := d.step("head"); err != nil {
		return next, was, kind.Wrap(kind.Unavailable, "append", "", err)
	}
	return d.Store.Append(ctx, from, b)
}

func (d dying) Remove(ctx context.Context, tenant string, g bundle.Generation) error {
	if err := d.step("remove"); err != nil {
		return err
	}
	return d.Store.Remove(ctx, tenant, g)
}

// Wherever a gateway dies, a bundle has all values of one generation, and another gateway removes those
// of others.
func TestAGatewayDiesDuringAChange(t *testing.T) {
	b, log := open(t, eventstest.Start(t))
	for i, step := range []string{"value", "head", "remove"} {
		name := "b" + step
		create(t, b, name, values(3, "old"))
		var died atomic.Bool // values are stored concurrently
		d := *b
		d.store = dying{b.store, func(s string) error {
			if s != step {
				return nil
			}
			died.Store(true)
			return errDied
		}}
		_, err := d.Replace(t.Context(), alice, name, values(3, "new"))
		want := "old"
		if step == "remove" { // its failure is not that of the change
			want = "new"
		} else if err == nil {
			t.Errorf("%s: no error", step)
		}
		if !died.Load() {
			t.Errorf("%s was not reached", step)
		}
		got, err := b.Resolve(t.Context(), "alice", []string{name})
		if err != nil || len(got.Values) != 3 || got.Values["KEY_01"] != want {
			t.Errorf("%s: %v, %v", step, got.Values, err)
		}
		if n, err := log.Bundles().Sweep(t.Context(), time.Now().Add(2*time.Hour)); n != 1 || err != nil {
			t.Errorf("%s: %d generations were left, %v; want 1", step, n, err)
		}
		if got, err := b.Resolve(t.Context(), "alice", []string{name}); err != nil || len(got.Values) != 3 {
			t.Errorf("%d: after the sweep: %v, %v", i, got.Values, err)
		}
	}
}
