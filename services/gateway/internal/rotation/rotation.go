package rotation

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/bundles"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	wait       = 5 * time.Second  // maximum time of Rotate
	interval   = 5 * time.Second  // between two searches for conversations that are behind
	grace      = 10 * time.Second // for the gateway of a rotation, before others repeat it
	repeatTime = 20 * time.Second // maximum time of a repetition
	concurrent = 64               // conversations that get values at the same time
)

// Bundles are secret bundles. *bundles.Bundles implements it.
type Bundles interface {
	List(ctx context.Context, p core.Principal) ([]bundle.Head, error)
	Resolve(ctx context.Context, tenant string, names []string) (bundles.Resolved, error)
}

// Conversation is a conversation whose sandbox runs, with the secrets that its runtime has.
type Conversation struct {
	ID          string
	Tenant      string
	Sandbox     sandbox.ID
	Bundles     []string          // names
	Generations map[string]string // of the bundles whose values the runtime has, by name
	Number      uint32            // of replacements since the sandbox serves
}

// Next is the secrets that a runtime gets.
type Next struct {
	Values      map[string]string
	Generations map[string]string // of the bundles, by name
	Keys        []string          // names of the keys of the bundles that changed
}

// Conversations are the conversations that a runtime serves.
type Conversations interface {
	// Serving returns the conversations of a tenant whose sandbox runs, not older than the call.
	Serving(ctx context.Context, tenant string) ([]Conversation, error)
	// AllServing returns those of all tenants as of the view.
	AllServing() []Conversation
	// Get returns a conversation as of the view. ok is false if its sandbox does not run.
	Get(id string) (c Conversation, ok bool)
	// Configure gives values to the runtime of a conversation, and stores the generations when the runtime
	// has them. It returns Conflict, after it has given them, if the conversation has another number or
	// sandbox meanwhile. A call with the same attempt and conversation repeats the earlier one.
	Configure(ctx context.Context, c *Conversation, next *Next, attempt string) error
}

// Rotator gives values of rotated bundles to conversations. Its methods may be called concurrently.
type Rotator struct {
	bundles       Bundles
	conversations Conversations
	log           *slog.Logger
}

// New returns a Rotator. It does no I/O.
func New(b Bundles, c Conversations, log *slog.Logger) *Rotator { return &Rotator{b, c, log} }

// Rotate gives the valid values of a bundle to the running conversations that name it. It returns after
// five seconds at most, with the sandboxes of those that do not have the values by then.
func (r *Rotator) Rotate(ctx context.Context, p core.Principal, name string) (pending []sandbox.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	all, err := r.conversations.Serving(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c Conversation) bool { return !slices.Contains(c.Bundles, name) })
	return r.update(ctx, all, ""), nil
}

// update gives the valid values to conversations and returns the sandboxes of those that do not have
// them when ctx ends.
func (r *Rotator) update(ctx context.Context, all []Conversation, attempt string) (pending []sandbox.ID) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(concurrent)
	for i := range all {
		group.Go(func() error {
			err := r.one(ctx, all[i], attempt)
			if err == nil {
				return nil
			}
			if !unresolvable(err) && ctx.Err() == nil {
				r.log.Warn("give rotated secrets to a session failed", "session", all[i].ID, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			pending = append(pending, all[i].Sandbox)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	slices.Sort(pending)
	return pending
}

// unresolvable reports whether an error is that of bundles that cannot be resolved together.
func unresolvable(err error) bool { return kind.Is(err, kind.NotFound) || kind.Is(err, kind.Invalid) }

// one gives the valid values to a conversation.
func (r *Rotator) one(ctx context.Context, c Conversation, attempt string) error {
	for again := false; ; again = true {
		got, err := r.bundles.Resolve(ctx, c.Tenant, c.Bundles)
		if err != nil {
			return err
		}
		next, changed := changes(c.Generations, &got)
		if !changed && !again {
			return nil
		}
		err = r.conversations.Configure(ctx, &c, &next, attempt)
		if !kind.Is(err, kind.Conflict) {
			return err
		}
		now, ok := r.conversations.Get(c.ID)
		if !ok || now.Sandbox != c.Sandbox {
			return nil // no runtime has the values that were replaced
		}
		c = now
	}
}

// changes returns the valid secrets, and whether they are of other generations.
func changes(from map[string]string, got *bundles.Resolved) (next Next, changed bool) {
	next.Values, next.Generations = got.Values, make(map[string]string, len(got.Heads))
	for i := range got.Heads {
		h := &got.Heads[i]
		next.Generations[string(h.Name)] = string(h.Generation)
		if from[string(h.Name)] != string(h.Generation) {
			changed = true
			next.Keys = append(next.Keys, h.Keys...)
		}
	}
	slices.Sort(next.Keys)
	return next, changed
}

// Run repeats rotations that did not reach a conversation, until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			r.repeat(ctx, now)
		}
	}
}

// repeat gives the valid values to all conversations that are behind.
func (r *Rotator) repeat(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, repeatTime)
	defer cancel()
	tenants := make(map[string][]Conversation)
	for _, c := range r.conversations.AllServing() {
		if len(c.Bundles) > 0 {
			tenants[c.Tenant] = append(tenants[c.Tenant], c)
		}
	}
	var late []Conversation
	for tenant, all := range tenants {
		heads, err := r.bundles.List(ctx, core.Principal{Tenant: tenant})
		if err != nil {
			r.log.Warn("read secret bundles of sessions failed", "tenant", tenant, "err", err)
			return
		}
		for i := range all {
			if behind(&all[i], heads, now) {
				late = append(late, all[i])
			}
		}
	}
	// Gateways that do this at the same time start the same process.
	r.update(ctx, late, strconv.FormatInt(now.Unix()/int64(time.Minute/time.Second), 10))
}

// behind reports whether a rotation has not reached a conversation.
func behind(c *Conversation, heads []bundle.Head, now time.Time) bool {
	return slices.ContainsFunc(heads, func(h bundle.Head) bool {
		return slices.Contains(c.Bundles, string(h.Name)) && c.Generations[string(h.Name)] != string(h.Generation) && now.Sub(h.Rotated) > grace
	})
}
