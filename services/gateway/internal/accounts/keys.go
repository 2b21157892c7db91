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

// Keys returns the valid API keys of the principal's tenant, oldest first.
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
	all, err := a.Keys(ctx, p)
	if err != nil {
		return "", catalog.Key{}, err
	}
	if len(all) >= maxKeys {
		return "", catalog.Key{}, kind.Newf(kind.Exhausted, "issue key", "", "there are %d keys: revoke one first", len(all))
	}
	secret := catalog.NewAPIKey()
	k := catalog.KeyOf(p.Tenant, secret, time.Now())
	k.Name = name
	ctx, cancel := context.WithTimeout(ctx, a.core.CallTimeout)
	defer cancel()
	if err := a.core.Log.IssueKey(ctx, k); err != nil {
		return "", catalog.Key{}, core.LogError("issue key", k.ID, err)
	}
	return secret, k, a.core.Sync(ctx)
}

// RevokeKey revokes an API key of the principal's tenant for ever. This gateway rejects new
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
