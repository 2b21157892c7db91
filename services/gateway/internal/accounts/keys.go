package accounts

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const maxKeys = 1000 // of a tenant

// Keys returns the valid API keys and key pairs of the principal's tenant, oldest first.
func (a *Accounts) Keys(ctx context.Context, p core.Principal) ([]catalog.Key, error) {
	if err := a.core.Sync(ctx); err != nil {
		return nil, err
	}
	return a.keys(p), nil
}

func (a *Accounts) keys(p core.Principal) []catalog.Key {
	return slices.DeleteFunc(a.core.View.Keys(p.Tenant), func(k catalog.Key) bool { return k.Revoked })
}

// IssueKey creates an API key for the principal's tenant and returns its secret, which is
// not stored. It returns Exhausted if the tenant has 1000 keys.
func (a *Accounts) IssueKey(ctx context.Context, p core.Principal, name string) (string, catalog.Key, error) {
	secret := catalog.NewAPIKey()
	k := catalog.KeyOf(p.Tenant, secret, time.Now())
	k.Name = name
	return secret, k, a.issue(ctx, p, k)
}

// IssueKeyPair creates a key pair for the principal's tenant, with which clients sign requests,
// and returns its secret key, which no other method for clients returns. Its access key is in k.
// It returns Exhausted as IssueKey does.
func (a *Accounts) IssueKeyPair(ctx context.Context, p core.Principal, name string) (secret string, k catalog.Key, err error) {
	access, secret := catalog.NewKeyPair()
	k = catalog.PairOf(p.Tenant, access, time.Now())
	k.Name = name
	if k.Secret, err = a.core.Sealer.Seal(k.Place(), secret); err != nil {
		return "", k, core.LogError("issue key", k.ID, err)
	}
	return secret, k, a.issue(ctx, p, k)
}

func (a *Accounts) issue(ctx context.Context, p core.Principal, k catalog.Key) error {
	all, err := a.Keys(ctx, p)
	if err != nil {
		return err
	}
	if len(all) >= maxKeys {
		return kind.Newf(kind.Exhausted, "issue key", "", "there are %d keys: revoke one first", len(all))
	}
	ctx, cancel := context.WithTimeout(ctx, a.core.CallTimeout)
	defer cancel()
	if err := a.core.Log.IssueKey(ctx, k); err != nil {
		return core.LogError("issue key", k.ID, err)
	}
	return a.core.Sync(ctx)
}

// KeyPair returns the tenant and the secret key of an access key, to check signatures. ok is
// false if the pair does not exist, was revoked, or cannot be opened, which is logged.
func (a *Accounts) KeyPair(access string) (tenant, secret string, ok bool) {
	k, ok := a.core.View.KeyPair(access)
	if !ok {
		return "", "", false
	}
	secret, err := a.core.Sealer.Open(k.Place(), k.Secret)
	if err != nil {
		a.core.Slog.Error("open key pair failed", "tenant", k.Tenant, "key", k.ID, "err", err)
		return "", "", false
	}
	return k.Tenant, secret, true
}

// RevokeKey revokes an API key or key pair of the principal's tenant for ever. This gateway rejects new
// requests with it before the call returns, every other gateway once the revocation arrives;
// open streams continue. It returns NotFound for a key that is not valid, and Conflict for
// the key that authenticates this very request, so that one key always remains.
func (a *Accounts) RevokeKey(ctx context.Context, p core.Principal, id, asking string) error {
	ctx, cancel := context.WithTimeout(ctx, a.core.CallTimeout)
	defer cancel()
	by := catalog.KeyOf(p.Tenant, asking, time.Time{}).ID
	for { // Conflict: another revocation was stored first; retry
		if err := a.core.Sync(ctx); err != nil {
			return err
		}
		rev := a.core.View.RevocationsRev(p.Tenant)
		has := func(id string) bool {
			return slices.ContainsFunc(a.keys(p), func(k catalog.Key) bool { return k.ID == id })
		}
		switch {
		case !has(by):
			return kind.New(kind.Unauthenticated, "revoke key", id, "the key of this request has been revoked")
		case !has(id):
			return kind.Newf(kind.NotFound, "revoke key", id, "API key '%.100s' not found", id)
		case id == by:
			return kind.New(kind.Conflict, "revoke key", id, "a key cannot revoke itself: use another key")
		}
		err := a.core.Log.RevokeKey(ctx, p.Tenant, id, rev)
		if err == nil {
			return a.core.Sync(ctx)
		}
		if !kind.Is(err, kind.Conflict) {
			return core.LogError("revoke key", id, err)
		}
	}
}
