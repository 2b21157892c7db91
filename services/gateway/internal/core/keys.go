package core

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
)

const maxKeys = 1000 // of a tenant, at once

// Keys gives the API keys of a principal's tenant that may be used, oldest first.
func (c *Core) Keys(ctx context.Context, p Principal) ([]events.Key, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	return c.keys(p), nil
}

func (c *Core) keys(p Principal) []events.Key {
	return slices.DeleteFunc(c.view.Keys(p.Tenant), func(k events.Key) bool { return k.Revoked })
}

// IssueKey makes an API key of a principal's tenant, which is told this once. Exhausted
// where there are 1000.
func (c *Core) IssueKey(ctx context.Context, p Principal, name string) (string, events.Key, error) {
	all, err := c.Keys(ctx, p)
	if err != nil {
		return "", events.Key{}, err
	}
	if len(all) >= maxKeys {
		return "", events.Key{}, kind.Newf(kind.Exhausted, "issue key", "", "there are %d keys: revoke one first", len(all))
	}
	secret := events.NewAPIKey()
	k := events.KeyOf(p.Tenant, secret, time.Now())
	k.Name = name
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	if err := c.log.IssueKey(ctx, k); err != nil {
		return "", events.Key{}, logError("issue key", k.ID, err)
	}
	return secret, k, c.Sync(ctx)
}

// RevokeKey ends an API key of a principal's tenant for ever. Every gateway refuses new
// requests with it as soon as it has heard of that, this one before the call returns;
// streams that are open go on. NotFound where there is none that may be used; Conflict
// for the one with which it is asked: so that one is always left.
func (c *Core) RevokeKey(ctx context.Context, p Principal, id, asking string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	by := events.KeyOf(p.Tenant, asking, time.Time{}).ID
	for { // a conflict is another caller's success
		if err := c.Sync(ctx); err != nil {
			return err
		}
		rev := c.view.RevocationsRev(p.Tenant)
		has := func(id string) bool {
			return slices.ContainsFunc(c.keys(p), func(k events.Key) bool { return k.ID == id })
		}
		switch {
		case !has(by):
			return kind.New(kind.Unauthenticated, "revoke key", id, "the key with which this is asked has been revoked")
		case !has(id):
			return kind.Newf(kind.NotFound, "revoke key", id, "API key '%.100s' not found", id)
		case id == by:
			return kind.New(kind.Conflict, "revoke key", id, "a key cannot revoke itself: ask with another one")
		}
		err := c.log.RevokeKey(ctx, p.Tenant, id, rev)
		if err == nil {
			return c.Sync(ctx)
		}
		if !kind.Is(err, kind.Conflict) {
			return logError("revoke key", id, err)
		}
	}
}
