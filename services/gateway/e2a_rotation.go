package gateway

import (
	"context"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/services/gateway/internal/conversations"
	"github.com/millrace/millrace/services/gateway/internal/rotation"
)

// rotated are the conversations that get rotated secrets. It implements [rotation.Conversations].
type rotated struct{ *conversations.Conversations }

func rotatedOf(c *conversation.State) rotation.Conversation {
	return rotation.Conversation{
		ID: string(c.ID), Tenant: c.Owner, Sandbox: c.Sandbox, Bundles: c.Terms.Bundles, Generations: c.Config.Generations, Number: c.Config.Number,
	}
}

func allRotated(all []conversation.State) []rotation.Conversation {
	out := make([]rotation.Conversation, len(all))
	for i := range all {
		out[i] = rotatedOf(&all[i])
	}
	return out
}

// Serving implements [rotation.Conversations].
func (r rotated) Serving(ctx context.Context, tenant string) ([]rotation.Conversation, error) {
	all, err := r.Conversations.Serving(ctx, tenant)
	return allRotated(all), err
}

// AllServing implements [rotation.Conversations].
func (r rotated) AllServing() []rotation.Conversation {
	return allRotated(r.Conversations.AllServing())
}

// Get implements [rotation.Conversations].
func (r rotated) Get(id string) (rotation.Conversation, bool) {
	c, ok := r.Conversations.Get(conversation.ID(id))
	return rotatedOf(&c), ok
}

// Configure implements [rotation.Conversations].
func (r rotated) Configure(ctx context.Context, c *rotation.Conversation, next *rotation.Next, attempt string) error {
	now, ok := r.Conversations.Get(conversation.ID(c.ID))
	if !ok || now.Sandbox != c.Sandbox {
		return nil // its next runtime has the valid values
	}
	now.Config.Number = c.Number
	return r.Conversations.Configure(ctx, &now, next.Values, conversation.Configured{Generations: next.Generations, Keys: next.Keys}, attempt)
}
