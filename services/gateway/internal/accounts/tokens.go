package accounts

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/usertoken"
)

// checkTimeout bounds how long the check of a credential waits for a view that lags.
const checkTimeout = time.Second

// Token returns a token for a user.
func (u *Users) Token(ctx context.Context, of User) (token string, err error) {
	err = u.retry(ctx, "sign token", func(ctx context.Context) error {
		keys, now := u.cfg.Directory.TokenKeys(), u.cfg.Now()
		k, ok := usertoken.Signer(keys, now)
		if !ok || u.ring.Opens(&k) != nil { // the data key that sealed it may have been removed
			if k, err = u.newTokenKey(ctx, keys); err != nil {
				return err
			}
		}
		token, err = u.ring.Sign(&k, of.Tenant, now)
		return err
	})
	return token, err
}

// RotateTokenKey makes a new key. Tokens of the one before stay valid until they expire.
func (u *Users) RotateTokenKey(ctx context.Context) error {
	return u.retry(ctx, "rotate token key", func(ctx context.Context) error {
		_, err := u.newTokenKey(ctx, u.cfg.Directory.TokenKeys())
		return err
	})
}

// newTokenKey stores the key after the last of keys. It returns Conflict if another one was made.
func (u *Users) newTokenKey(ctx context.Context, keys []account.TokenKey) (account.TokenKey, error) {
	k := account.TokenKey{Number: 1, Made: u.cfg.Now()}
	if n := len(keys); n > 0 {
		k.Number = keys[n-1].Number + 1
	}
	sealed, err := u.cfg.Core.Sealer.Seal(k.Place(), string(usertoken.NewKey()))
	if err != nil {
		return k, err
	}
	k.Sealed = sealed
	return k, u.cfg.Directory.PutTokenKey(ctx, &k)
}

// UserToken returns the principal of a user's token. ok is false if the token is not valid.
func (u *Users) UserToken(ctx context.Context, token string) (p core.Principal, ok bool) {
	number := usertoken.Number(token)
	if number == 0 {
		return p, false
	}
	if p, ok = u.check(token); ok {
		return p, true
	}
	keys := u.cfg.Directory.TokenKeys()
	if n := len(keys); n > 0 && number <= keys[n-1].Number {
		if _, signed := u.ring.Check(keys, token, u.cfg.Now()); !signed {
			return p, false
		}
	}
	// Another gateway has just made the key or the account.
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := u.cfg.Directory.Sync(ctx); err != nil {
		return p, false
	}
	return u.check(token)
}

// check is UserToken for the view as it is.
func (u *Users) check(token string) (core.Principal, bool) {
	tenant, ok := u.ring.Check(u.cfg.Directory.TokenKeys(), token, u.cfg.Now())
	if ok {
		_, ok = u.cfg.Directory.AccountOf(tenant)
	}
	if !ok {
		return core.Principal{}, false
	}
	return core.Principal{Tenant: tenant}, true
}
