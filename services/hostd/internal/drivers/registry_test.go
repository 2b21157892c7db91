package drivers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// All sandboxes of a run share one driver per name, adopted or created: it tracks which of the
// host's uids they use.
func TestRunHasOneDriverPerName(t *testing.T) {
	r := New(Config{Names: []string{"direct"}, Log: slog.New(slog.DiscardHandler)})
	found, err := r.Driver("direct")
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.probe(t.Context())
	if err != nil || len(all) != 1 || all[0].Driver != found {
		t.Errorf("a second driver is offered: %v, %v", all, err)
	}
}

// The capabilities that the late driver's probe finds are offered, and stored for the next run.
func TestLateDriverIsProbed(t *testing.T) {
	if _, err := helperbin.Runsc().Find(); err != nil {
		t.Skip(err)
	}
	plain := Offer{Driver: named{name: "plain"}}
	for _, c := range []struct {
		probe           error
		offered, proven []string
	}{
		{nil, []string{Late, "plain"}, []string{Late, "plain"}},
		{kind.New(kind.Unavailable, "probe", "", "not today"), []string{"plain"}, []string{"plain"}},
	} {
		var next Stored
		r := New(Config{
			Log: slog.New(slog.DiscardHandler), Changed: func() {},
			Store: func(s *Stored) error { next = *s; return nil },
		})
		r.verified = []Offer{plain}
		r.offers = []Offer{{Driver: named{name: Late, err: c.probe}}, plain}
		if err := errors.Join(r.store(r.verified), r.offerLate(t.Context())); err != nil {
			t.Fatal(err)
		}
		var proven []string
		for _, o := range next.Drivers {
			proven = append(proven, o.Name)
		}
		if got := namesOf(r.Offers()); !slices.Equal(got, c.offered) || !slices.Equal(proven, c.proven) {
			t.Errorf("probe with %v: offered %q, stored %q", c.probe, got, proven)
		}
	}
}

// Await waits for a driver as long as it may be added, and no longer.
func TestAwait(t *testing.T) {
	plain, late := Offer{Driver: direct.New(direct.Config{})}, Offer{Driver: named{name: Late}}
	const opened, settled = 1, 2 // steps after which the answer is known
	for _, c := range []struct {
		what, asked string
		first       []Offer
		known       int
		want        string // empty: not offered
	}{
		{"one that is offered", "direct", []Offer{plain}, opened, "direct"},
		{"the default", "", []Offer{plain}, opened, "direct"},
		{"one that is not built", "other", []Offer{plain}, opened, ""},
		{"the late one", Late, []Offer{plain}, settled, Late},
		{"the late one, from the journal", Late, []Offer{late, plain}, opened, Late},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := New(Config{})
			got, answered := "", false
			go func() {
				if o, ok := r.Await(t.Context(), c.asked); ok {
					got = o.Name()
				}
				answered = true
			}()
			steps := []func(){
				func() {},
				func() { r.set(c.first) },
				func() { r.offers = with(c.first, late, false); close(r.settled) },
			}
			for step, do := range steps {
				do()
				synctest.Wait()
				if answered != (step >= c.known) {
					t.Errorf("%s: answered: %v after step %d", c.what, answered, step)
				}
			}
			if got != c.want {
				t.Errorf("%s: %q", c.what, got)
			}
		})
	}
}

// A driver that is offered again replaces its old offer, at the requested position.
func TestDriverIsOfferedOnce(t *testing.T) {
	plain, late := Offer{Driver: named{name: "plain"}}, Offer{Driver: named{name: Late}}
	for _, c := range []struct {
		before []Offer
		first  bool
		want   []string
	}{
		{[]Offer{plain}, true, []string{Late, "plain"}},
		{[]Offer{plain}, false, []string{"plain", Late}},
		{[]Offer{late, plain}, true, []string{Late, "plain"}},
		{[]Offer{plain, late}, false, []string{"plain", Late}},
	} {
		if got := namesOf(with(c.before, late, c.first)); !slices.Equal(got, c.want) {
			t.Errorf("%d before, first %v: %q", len(c.before), c.first, got)
		}
	}
}

// Await ends with its context.
func TestAwaitEndsWithItsContext(t *testing.T) {
	r := New(Config{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if o, ok := r.Await(over, Late); ok {
		t.Errorf("got driver %s", o.Name())
	}
}

// named is a driver with nothing but a name.
type named struct {
	driver.Driver
	name string
	err  error // result of Probe
}

func (d named) Name() string { return d.name }

func (d named) Probe(context.Context) (driver.Caps, error) { return driver.Caps{}, d.err }

func namesOf(all []Offer) (out []string) {
	for _, o := range all {
		out = append(out, o.Name())
	}
	return out
}
