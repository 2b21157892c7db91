package sse

import (
	"context"
	"slices"
	"sync"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/webhook"
)

// Log is the part of the log that a Hub uses, implemented by [catalog.SandboxLog].
type Log interface {
	SandboxesRev() uint64
	FollowSandboxes(ctx context.Context, after uint64, begin func() (wanted func(tenant string) bool), add func(all []catalog.SandboxEvent, rev uint64)) error
	SandboxEvents(ctx context.Context, tenant string, after webhook.Position, until uint64) ([]catalog.SandboxEvent, webhook.Position, error)
}

var _ Log = catalog.SandboxLog{}

// Hub passes the events of sessions on to the listeners of a gateway. Its methods may be called
// concurrently.
type Hub struct {
	log Log

	mu       sync.Mutex
	topics   map[string]*topic // by tenant
	rev      uint64            // all events up to it are in the topics
	decoding bool              // a batch is being decoded, for the tenants that had topics at its beginning
	late     []*topic          // topics since then
}

// topic is the events of a tenant.
type topic struct {
	listeners int
	from      Cursor // all events after it are in window
	window    []Event
	changed   chan struct{} // closed and replaced at every change
}

// maxWindow is the number of events that a topic keeps after it has dropped some; it has at most
// twice as many.
const maxWindow = 256

// NewHub returns a hub without listeners.
func NewHub(log Log) *Hub { return &Hub{log: log, topics: make(map[string]*topic)} }

// Run follows the log until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	after := h.log.SandboxesRev()
	h.mu.Lock()
	h.rev = after
	for _, t := range h.topics { // of listeners that came before
		t.from = Through(after)
		t.announce()
	}
	h.mu.Unlock()
	err := h.log.FollowSandboxes(ctx, after, h.begin, h.add)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the gateway ends
	}
	return err
}

// begin returns which tenants have listeners.
func (h *Hub) begin() (wanted func(tenant string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decoding = true
	now := make(map[string]bool, len(h.topics))
	for tenant := range h.topics {
		now[tenant] = true
	}
	return func(tenant string) bool { return now[tenant] }
}

// add adds the events up to a stream sequence.
func (h *Hub) add(all []catalog.SandboxEvent, rev uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev, h.decoding = rev, false
	for i := range all {
		t := h.topics[all[i].State.Tenant]
		if t == nil || slices.Contains(h.late, t) {
			continue
		}
		if events := Of(&all[i]); len(events) > 0 {
			t.add(events)
		}
	}
	for _, t := range h.late {
		t.from = Through(rev)
		t.announce()
	}
	h.late = nil
}

func (t *topic) add(events []Event) {
	t.window = append(t.window, events...)
	if drop := len(t.window) - maxWindow; drop > maxWindow {
		t.from = t.window[drop-1].Cursor
		t.window = append([]Event(nil), t.window[drop:]...) // frees the others
	}
	t.announce()
}

func (t *topic) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// join adds a listener to a tenant's topic.
func (h *Hub) join(tenant string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[tenant]
	if t == nil {
		t = &topic{from: Through(h.rev), changed: make(chan struct{})}
		h.topics[tenant] = t
		if h.decoding {
			h.late = append(h.late, t) // what is being decoded omits it
		}
	}
	t.listeners++
	return t
}

// leave removes a listener. The last one removes the topic.
func (h *Hub) leave(tenant string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[tenant]
	if t.listeners--; t.listeners == 0 {
		delete(h.topics, tenant)
		h.late = slices.DeleteFunc(h.late, func(l *topic) bool { return l == t })
	}
}

// after returns the events after a cursor that the window has, or the stream sequence up to which
// the log has to be read before; 0: none. changed is closed when there is more.
func (h *Hub) after(t *topic, at Cursor) (events []Event, until uint64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.Compare(t.from) < 0 {
		return nil, t.from.At.Rev(), t.changed
	}
	i, found := slices.BinarySearchFunc(t.window, at, func(e Event, c Cursor) int { return e.Compare(c) })
	if found {
		i++
	}
	return t.window[i:len(t.window):len(t.window)], 0, t.changed
}
