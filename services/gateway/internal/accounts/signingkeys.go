package accounts

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// EnsureSigningKey makes sure that a key to sign sandboxes' tokens exists: the first
// caller that needs one makes it.
func (a *Accounts) EnsureSigningKey(ctx context.Context) error {
	if len(a.core.View.SigningKeys()) > 0 {
		return nil
	}
	if err := a.core.Sync(ctx); err != nil || len(a.core.View.SigningKeys()) > 0 {
		return err
	}
	return a.newSigningKey(ctx, 1)
}

// RotateSigningKey makes a new key. It signs once it has been published for
// identity.Ahead; its predecessor stays published while tokens signed with it are valid.
// It returns Conflict if another caller does the same.
func (a *Accounts) RotateSigningKey(ctx context.Context) error {
	if err := a.EnsureSigningKey(ctx); err != nil {
		return err
	}
	keys := a.core.View.SigningKeys()
	return a.newSigningKey(ctx, keys[len(keys)-1].Number+1)
}

func (a *Accounts) newSigningKey(ctx context.Context, number uint32) error {
	der, err := identity.NewKey()
	if err != nil {
		return err
	}
	sealed, err := a.core.Sealer.Seal(identity.Place(number), string(der))
	if err != nil {
		return core.LogError("make signing key", "", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.core.CallTimeout)
	defer cancel()
	err = a.core.Log.PutSigningKey(ctx, number, sealed)
	if kind.Is(err, kind.Conflict) && number > 1 {
		return kind.New(kind.Conflict, "make signing key", "", "another key is being made at the same time")
	}
	if err != nil && !kind.Is(err, kind.Conflict) {
		return core.LogError("make signing key", "", err)
	}
	return a.core.Sync(ctx)
}

// JWKS returns the key set that verifies sandboxes' tokens; see [identity.Ring].
func (a *Accounts) JWKS(ctx context.Context) ([]byte, error) {
	if err := a.EnsureSigningKey(ctx); err != nil {
		return nil, err
	}
	return a.ring.JWKS(a.core.View.SigningKeys(), time.Now())
}
