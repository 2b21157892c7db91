package conversations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

// Serving returns the conversations of a tenant whose sandbox runs, not older than the call.
func (cs *Conversations) Serving(ctx context.Context, tenant string) ([]conversation.State, error) {
	if err := cs.sync(ctx); err != nil {
		return nil, err
	}
	return cs.serving(func(c *conversation.State) bool { return c.Owner == tenant }), nil
}

// AllServing returns the conversations of all tenants whose sandbox runs, as of the view.
func (cs *Conversations) AllServing() []conversation.State {
	return cs.serving(func(*conversation.State) bool { return true })
}

func (cs *Conversations) serving(keep func(*conversation.State) bool) []conversation.State {
	all := cs.cfg.Store.List(func(c *conversation.State) bool { return c.Phase == conversation.Serving && keep(c) })
	return slices.DeleteFunc(all, func(c conversation.State) bool { return !cs.runs(&c) })
}

// Get returns a conversation as of the view. ok is false if its sandbox does not run.
func (cs *Conversations) Get(id conversation.ID) (c conversation.State, ok bool) {
	c, ok = cs.cfg.Store.Get(id)
	return c, ok && c.Phase == conversation.Serving && cs.runs(&c)
}

func (cs *Conversations) runs(c *conversation.State) bool {
	st, ok := cs.cfg.Sandboxes.State(c.Sandbox)
	return ok && st.IsRunning()
}

// Configure gives values of bundles to the runtime of a conversation, and stores that the runtime has them. It
// returns Conflict, after it has given them, if the conversation has another configuration or sandbox
// meanwhile. A call with the same attempt and conversation repeats the earlier one.
func (cs *Conversations) Configure(ctx context.Context, c *conversation.State, values map[string]string, next conversation.Configured, attempt string) error {
	set := setOf(c.Config.Number+1, next.Generations, attempt)
	for i, spec := range bootstrap.Update(bootstrap.Config{Secrets: values, Platform: platform(c)}, set) {
		key := fmt.Sprintf("config %s %d", set, i)
		_, src, err := cs.cfg.Processes.Start(ctx, core.Principal{Tenant: c.Owner}, c.Sandbox, spec, procs.StartOptions{IdempotencyKey: key})
		if err != nil {
			return err
		}
		err = await(ctx, src, exited)
		src.Close()
		if err != nil {
			return kind.Wrap(kind.Unavailable, "configure runtime", string(c.ID), err)
		}
	}
	_, err := cs.cfg.Store.Change(ctx, c.ID, func(now *conversation.State) (conversation.Body, error) {
		if now.Sandbox != c.Sandbox || now.Phase != conversation.Serving || now.Config.Number != c.Config.Number {
			return nil, kind.New(kind.Conflict, "configure runtime", string(c.ID), "it has another configuration")
		}
		return next, nil
	})
	return err
}

// setOf returns the name of an attempt to give a configuration to a sandbox.
func setOf(number uint32, generations map[string]string, attempt string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(generations)) {
		fmt.Fprintf(h, "%s=%s\n", name, generations[name])
	}
	fmt.Fprintf(h, "%s", attempt)
	return fmt.Sprintf("%d-%s", number, hex.EncodeToString(h.Sum(nil)[:12]))
}

// Configured returns the names of the keys that a rotation has changed since the last call, or since the client was
// attached. It belongs to the goroutine of Check.
func (cl *Client) Configured() []string {
	c, ok := cl.cs.cfg.Store.Get(cl.c.ID)
	if !ok || c.Sandbox != cl.c.Sandbox || c.Config.Number == cl.c.Config.Number {
		return nil
	}
	cl.c.Config = c.Config
	return c.Config.Keys
}
