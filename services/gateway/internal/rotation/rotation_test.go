package rotation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/bundles"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

var alice = core.Principal{Tenant: "alice"}

// world is the bundles and conversations of alice, and what their sandboxes have.
type world struct {
	mu      sync.Mutex
	state   bundle.State
	values  map[bundle.Generation]map[string]string
	all     map[string]Conversation
	files   map[sandbox.ID]map[string]string
	keys    [][]string
	silent  map[sandbox.ID]bool
	between func() // called once, after a runtime has values and before that is stored
}

func newWorld() *world {
	return &world{
		values: make(map[bundle.Generation]map[string]string), all: make(map[string]Conversation),
		files: make(map[sandbox.ID]map[string]string), silent: make(map[sandbox.ID]bool),
	}
}

func (w *world) rotator() *Rotator { return New(w, w, slog.New(slog.DiscardHandler)) }

// put makes or replaces a bundle.
func (w *world) put(t *testing.T, name string, values map[string]string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	g := bundle.NewGeneration()
	var body bundle.Body = bundle.Created{Name: bundle.Name(name), Keys: bundle.Keys(values), Generation: g, At: time.Now()}
	if _, err := w.state.Find(bundle.Name(name)); err == nil {
		body = bundle.Rotated{Name: bundle.Name(name), Keys: bundle.Keys(values), Generation: g, At: time.Now()}
	}
	next, _, err := w.state.Apply(body)
	if err != nil {
		t.Fatal(err)
	}
	w.state, w.values[g] = next, values
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	next, _, err := w.state.Apply(bundle.Deleted{Name: bundle.Name(name)})
	if err != nil {
		t.Fatal(err)
	}
	w.state = next
}

// converse starts a conversation.
func (w *world) converse(t *testing.T, id string, names ...string) sandbox.ID {
	t.Helper()
	sbx := sandbox.ID("i" + id)
	got, err := w.Resolve(t.Context(), "alice", names)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := changes(nil, &got)
	w.all[id] = Conversation{ID: id, Tenant: "alice", Sandbox: sbx, Bundles: names, Generations: next.Generations}
	w.files[sbx] = got.Values
	return sbx
}

func (w *world) List(context.Context, core.Principal) ([]bundle.Head, error) {
	return w.state.Heads, nil
}

func (w *world) Resolve(_ context.Context, _ string, names []string) (bundles.Resolved, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var asked []bundle.Name
	for _, n := range names {
		asked = append(asked, bundle.Name(n))
	}
	heads, err := w.state.Select(asked)
	out := bundles.Resolved{Values: make(map[string]string), Heads: heads}
	for i := range heads {
		maps.Copy(out.Values, w.values[heads[i].Generation])
	}
	return out, err
}

func (w *world) Serving(_ context.Context, tenant string) ([]Conversation, error) {
	return slices.DeleteFunc(w.AllServing(), func(c Conversation) bool { return c.Tenant != tenant }), nil
}

func (w *world) AllServing() []Conversation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.all))
}

func (w *world) Get(id string) (Conversation, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.all[id]
	return c, ok
}

func (w *world) Configure(ctx context.Context, c *Conversation, next *Next, _ string) error {
	w.mu.Lock()
	silent, between := w.silent[c.Sandbox], w.between
	if !silent {
		w.files[c.Sandbox], w.between = next.Values, nil
	}
	w.mu.Unlock()
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	if between != nil {
		between()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.all[c.ID]
	if now.Number != c.Number || now.Sandbox != c.Sandbox {
		return kind.New(kind.Conflict, "configure", c.ID, "")
	}
	now.Number, now.Generations = now.Number+1, next.Generations
	w.all[c.ID] = now
	w.keys = append(w.keys, next.Keys)
	return nil
}

// has checks what a sandbox has.
func (w *world) has(t *testing.T, sbx sandbox.ID, want map[string]string) {
	t.Helper()
	if got := w.files[sbx]; !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", sbx, got, want)
	}
}

func (w *world) rotate(t *testing.T, name string, want ...sandbox.ID) {
	t.Helper()
	if pending, err := w.rotator().Rotate(t.Context(), alice, name); err != nil || !slices.Equal(pending, want) {
		t.Errorf("pending %v, %v; want %v", pending, err, want)
	}
}

// E-320, E-324, E-325: the conversations that name a bundle get all its new values, and others keep theirs.
func TestRotate(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1", "GONE": "1"})
	w.put(t, "b", map[string]string{"B": "1"})
	both, one, other := w.converse(t, "both", "a", "b"), w.converse(t, "one", "a"), w.converse(t, "other", "b")
	w.put(t, "a", map[string]string{"A": "2", "NEW": "2"})
	w.rotate(t, "a")
	w.has(t, both, map[string]string{"A": "2", "NEW": "2", "B": "1"})
	w.has(t, one, map[string]string{"A": "2", "NEW": "2"})
	w.has(t, other, map[string]string{"B": "1"})
	if len(w.keys) != 2 || !slices.Equal(w.keys[0], []string{"A", "NEW"}) || !slices.Equal(w.keys[1], []string{"A", "NEW"}) {
		t.Errorf("changed keys: %v", w.keys)
	}
	w.rotate(t, "a") // nothing changed
	if len(w.keys) != 2 {
		t.Errorf("%d configurations, want 2", len(w.keys))
	}
}

// E-326, E-328: a conversation keeps its values if its bundles cannot be resolved.
func TestUnresolvableBundles(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1"})
	w.put(t, "b", map[string]string{"B": "1"})
	both, one := w.converse(t, "both", "a", "b"), w.converse(t, "one", "a")
	w.put(t, "a", map[string]string{"B": "2"})
	w.rotate(t, "a", both)
	w.has(t, both, map[string]string{"A": "1", "B": "1"})
	w.has(t, one, map[string]string{"B": "2"})
	w.remove(t, "b")
	w.put(t, "a", map[string]string{"A": "3"})
	w.rotate(t, "a", both)
	w.has(t, both, map[string]string{"A": "1", "B": "1"})
	w.has(t, one, map[string]string{"A": "3"})
}

// E-321: a silent host is pending, and gets the values from any gateway later.
func TestSilentHosts(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1"})
	lively, silent := w.converse(t, "lively", "a"), w.converse(t, "silent", "a")
	w.put(t, "a", map[string]string{"A": "2"})
	w.silent[silent] = true
	ctx, cancel := context.WithCancel(t.Context())
	w.between = cancel // the time of the request ends when the other one has its values
	pending, err := w.rotator().Rotate(ctx, alice, "a")
	if err != nil || !slices.Equal(pending, []sandbox.ID{silent}) {
		t.Errorf("pending %v, %v", pending, err)
	}
	w.has(t, lively, map[string]string{"A": "2"})
	w.has(t, silent, map[string]string{"A": "1"})
	w.silent[silent] = false
	w.rotator().repeat(t.Context(), time.Now())
	w.has(t, silent, map[string]string{"A": "1"}) // the gateway of the rotation may still be at it
	w.rotator().repeat(t.Context(), time.Now().Add(time.Minute))
	w.has(t, silent, map[string]string{"A": "2"})
	if len(w.keys) != 2 {
		t.Errorf("%d configurations, want 2", len(w.keys))
	}
}

// A gateway that stores its result second repeats: what a runtime has is what the log says.
func TestConcurrentRotations(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1"})
	sbx := w.converse(t, "c", "a")
	w.put(t, "a", map[string]string{"A": "2"})
	w.between = func() {
		w.put(t, "a", map[string]string{"A": "3"})
		w.rotate(t, "a")
		w.mu.Lock()
		w.files[sbx] = map[string]string{"A": "2"} // the first process was the last to write
		w.mu.Unlock()
	}
	w.rotate(t, "a")
	w.has(t, sbx, map[string]string{"A": "3"})
	c := w.all["c"]
	if h, err := w.state.Find("a"); err != nil || c.Generations["a"] != string(h.Generation) {
		t.Errorf("stored %v, want %s", c.Generations, h.Generation)
	}
}

// A conversation that was resumed meanwhile is left alone: its new runtime has values of its own.
func TestAResumeDuringARotation(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1"})
	w.converse(t, "c", "a")
	w.put(t, "a", map[string]string{"A": "2"})
	w.between = func() {
		c := w.all["c"]
		c.Sandbox = "iother"
		w.all["c"] = c
	}
	w.rotate(t, "a")
	if len(w.keys) != 0 {
		t.Errorf("configured: %v", w.keys)
	}
}

// A rotation reaches many conversations.
func TestManyConversations(t *testing.T) {
	w := newWorld()
	w.put(t, "a", map[string]string{"A": "1"})
	for i := range 1000 {
		w.converse(t, fmt.Sprint(i), "a")
	}
	w.put(t, "a", map[string]string{"A": "2"})
	w.rotate(t, "a")
	for sbx := range w.files {
		w.has(t, sbx, map[string]string{"A": "2"})
	}
}
