package core

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
)

// EnsureSigningKey makes sure that a key to sign sandboxes' tokens exists: the first
// caller that needs one makes it.
func (c *Core) EnsureSigningKey(ctx context.Context) error {
	if len(c.View.SigningKeys()) > 0 {
		return nil
	}
	if err := c.Sync(ctx); err != nil || len(c.View.SigningKeys()) > 0 {
		return err
	}
	return c.newSigningKey(ctx, 1)
}

// RotateSigningKey makes a new key. It signs once it has been published for
// identity.Ahead; its predecessor stays published while tokens signed with it are valid.
// It returns Conflict if another caller does the same.
func (c *Core) RotateSigningKey(ctx context.Context) error {
	if err := c.EnsureSigningKey(ctx); err != nil {
		return err
	}
	keys := c.View.SigningKeys()
	return c.newSigningKey(ctx, keys[len(keys)-1].Number+1)
}

func (c *Core) newSigningKey(ctx context.Context, number uint32) error {
	der, err := identity.NewKey()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	err = c.Log.PutSigningKey(ctx, number, c.Sealer.Seal(string(der)))
	if kind.Is(err, kind.Conflict) && number > 1 {
		return kind.New(kind.Conflict, "make signing key", "", "another key is being made at the same time")
	}
	if err != nil && !kind.Is(err, kind.Conflict) {
		return LogError("make signing key", "", err)
	}
	return c.Sync(ctx)
}

// JWKS returns the key set that verifies sandboxes' tokens; see [identity.Ring].
func (c *Core) JWKS(ctx context.Context) ([]byte, error) {
	if err := c.EnsureSigningKey(ctx); err != nil {
		return nil, err
	}
	return c.ring.JWKS(c.View.SigningKeys(), time.Now())
}
