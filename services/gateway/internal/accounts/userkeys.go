package accounts

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Key returns the API key with a secret, if it is valid. A key in one of e2a's forms that the view
// does not have is looked up again when the view is up to date: another gateway may have issued
// it a moment ago.
func (a *Accounts) Key(ctx context.Context, secret string) (catalog.Key, bool) {
	sum := sha256.Sum256([]byte(secret))
	k, ok := a.core.View.Key(sum)
	if !catalog.IsUserKey(secret) {
		return k, ok
	}
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		if err := catalog.SyncAccounts(ctx, a.core.View); err != nil {
			return k, false
		}
		k, ok = a.core.View.Key(sum)
	}
	if ok && !k.Hashed {
		a.hashes.add(k.Tenant, strings.Clone(secret))
	}
	return k, ok
}

// IssueUserKey is IssueKey for a key in a form of e2a, made by catalog.NewUserKey or
// catalog.NewLiveKey. Its slow hash is stored later, because it takes a tenth of a second.
func (a *Accounts) IssueUserKey(ctx context.Context, p core.Principal, secret string) (catalog.Key, error) {
	k := catalog.UserKeyOf(p.Tenant, secret, time.Now())
	err := a.issue(ctx, p, k)
	if err == nil {
		a.hashes.add(p.Tenant, secret)
	}
	return k, err
}

// AllKeys returns the API keys of the principal's tenant including revoked ones, oldest first.
func (a *Accounts) AllKeys(ctx context.Context, p core.Principal) ([]catalog.Key, error) {
	if err := a.core.Sync(ctx); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.core.View.Keys(p.Tenant), func(k catalog.Key) bool { return k.Access != "" }), nil
}

// RevokeUserKey revokes an API key of the principal's tenant for ever, also the one that
// authenticates this request: its user can log in and create another one. A revoked key stays
// revoked. It returns NotFound for the key of another tenant, with a [core.ForeignError] as its cause, as
// for one that does not exist.
func (a *Accounts) RevokeUserKey(ctx context.Context, p core.Principal, id string) error {
	ctx, cancel := context.WithTimeout(ctx, a.core.CallTimeout)
	defer cancel()
	for { // Conflict: another revocation was stored first; retry
		if err := a.core.Sync(ctx); err != nil {
			return err
		}
		rev := a.core.View.RevocationsRev(p.Tenant)
		is := func(k catalog.Key) bool { return k.ID == id && k.Access == "" }
		all := a.core.View.Keys(p.Tenant)
		i := slices.IndexFunc(all, is)
		switch {
		case i < 0:
			return a.noKey(id, is)
		case all[i].Revoked:
			return nil
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

// noKey returns NotFound for a key that the tenant does not have.
func (a *Accounts) noKey(id string, is func(catalog.Key) bool) error {
	err := &kind.Error{Op: "revoke key", ID: id, Kind: kind.NotFound, Msg: "key not found"}
	all := a.core.View.Keys("")
	if i := slices.IndexFunc(all, is); i >= 0 {
		err.Err = &core.ForeignError{Owner: all[i].Tenant}
	}
	return err
}
