package accounts

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
	"net/netip"
	"time"

	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/directory"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/usertoken"
)

const (
	// TestDomain is the domain of addresses that get their codes in the response in test mode.
	TestDomain = "e2a-qa.test"

	// Free is the plan of every account.
	Free = "free"

	// DefaultPerMinute is the default of UsersConfig.PerMinute.
	DefaultPerMinute = 20

	sweepInterval = 10 * time.Minute
	codes         = 1_000_000 // number of different codes
)

// Mailer sends mail. Its errors do not contain the text.
type Mailer interface {
	Send(ctx context.Context, to, subject, text string) error
}

// UsersConfig configures Users. Core and Directory are required.
type UsersConfig struct {
	Core      *core.Core
	Directory *directory.Store
	Mail      Mailer           // nil: no mail can be sent
	TestMode  bool             // addresses in TestDomain get no mail, and their codes in the response
	PerMinute int              // maximum requests of a source per minute; default DefaultPerMinute
	Now       func() time.Time // default time.Now
	Slog      *slog.Logger
}

// Users implements how people sign up and log in: codes, accounts and tokens. Its methods may be
// called concurrently once the directory has been started.
type Users struct {
	cfg  UsersConfig
	ring *usertoken.Ring
}

// NewUsers returns Users. It does no I/O.
func NewUsers(cfg UsersConfig) *Users {
	if cfg.PerMinute == 0 {
		cfg.PerMinute = DefaultPerMinute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Users{cfg, usertoken.NewRing(cfg.Core.Sealer)}
}

// User is a user with an account.
type User struct {
	Tenant  string
	Address account.Address // empty: the tenant was not made by signing up
	Created time.Time
}

// Start folds the accounts until viewing ends, and returns when the view is up to date. It is
// called once, before other methods.
func (u *Users) Start(ctx, viewing context.Context) error {
	if err := u.cfg.Directory.Start(viewing); err != nil {
		return err
	}
	return u.cfg.Directory.Sync(ctx)
}

// Run removes old records until ctx ends.
func (u *Users) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := u.cfg.Directory.Sweep(ctx, u.cfg.Now()); err != nil && ctx.Err() == nil {
				u.cfg.Slog.Warn("remove old accounts failed", "err", err)
			}
		}
	}
}

// retry runs do on a view that is up to date until it returns another error than Conflict.
func (u *Users) retry(ctx context.Context, op string, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.cfg.Core.CallTimeout)
	defer cancel()
	err := u.cfg.Directory.Sync(ctx)
	for err == nil {
		if err = do(ctx); !kind.Is(err, kind.Conflict) {
			break
		}
		err = u.cfg.Directory.Sync(ctx)
	}
	return core.LogError(op, "", err)
}

// Admit counts a request of a client and returns a Throttled error if its source sends too many.
// The count is the same on all gateways.
func (u *Users) Admit(ctx context.Context, client netip.Addr) error {
	return u.retry(ctx, "count request", func(ctx context.Context) error {
		x := u.cfg.Directory.Source(account.SourceOf(client))
		var wait time.Duration
		if x.Requests, wait = account.Admit(x.Requests, u.cfg.Now(), u.cfg.PerMinute, time.Minute); wait > 0 {
			return kind.Slow("count request", wait)
		}
		return u.cfg.Directory.PutSource(ctx, &x)
	})
}

// SendCode sends a code to an address, whether it has an account or not. It returns a Throttled
// error if too many were sent, and an Internal one with the code mail_failed if the mail was not
// accepted. code is empty except for an address in TestDomain in test mode.
func (u *Users) SendCode(ctx context.Context, to account.Address) (code string, err error) {
	code, requested, err := u.newCode(ctx, to)
	if err != nil {
		return "", err
	}
	if u.cfg.TestMode && to.Domain() == TestDomain {
		return code, nil
	}
	if err = u.send(ctx, to, code); err == nil {
		return "", nil
	}
	u.undelivered(ctx, &requested)
	return "", &kind.Error{Op: "send code", Kind: kind.Internal, Code: "mail_failed", Msg: "the mail could not be sent", Err: err}
}

// newCode stores a new code.
func (u *Users) newCode(ctx context.Context, to account.Address) (code string, next account.State, err error) {
	n, err := rand.Int(rand.Reader, big.NewInt(codes))
	if err != nil {
		return "", next, err
	}
	code = fmt.Sprintf("%06d", n)
	nonce := rand.Text()
	err = u.retry(ctx, "make code", func(ctx context.Context) error {
		a, now := u.cfg.Directory.Account(to), u.cfg.Now()
		if wait := a.Wait(now); wait > 0 {
			return kind.Slow("make code", wait)
		}
		next, err = u.cfg.Directory.Append(ctx, &a, account.Requested{
			Address: to, Code: account.Code{Nonce: nonce, Hash: u.hash(to, nonce, code), Sent: now},
		})
		return err
	})
	return code, next, err
}

// hash returns what is stored of a code. A million codes are tried in a moment, so the hash has a
// key that the store does not contain in plain text.
func (u *Users) hash(to account.Address, nonce, code string) string {
	return u.cfg.Core.DeriveKey("code\x00" + string(to.ID()) + "\x00" + nonce + "\x00" + code)
}

func (u *Users) send(ctx context.Context, to account.Address, code string) error {
	if u.cfg.Mail == nil {
		return kind.New(kind.Precondition, "send code", "", "no mail relay is configured: see --smtp")
	}
	return u.cfg.Mail.Send(ctx, string(to), "Your sign-in code", "Your code is "+code+".\n\n"+
		"It is valid for ten minutes and can be used once. If you did not request it, ignore this mail.\n")
}

// undelivered stores that the code of a state was not sent, unless another one was made since.
func (u *Users) undelivered(ctx context.Context, a *account.State) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), u.cfg.Core.CallTimeout)
	defer cancel()
	_, err := u.cfg.Directory.Append(ctx, a, account.Undelivered{Nonce: a.Code.Nonce})
	if err != nil && !kind.Is(err, kind.Conflict) {
		u.cfg.Slog.Warn("store failed mail failed", "err", err)
	}
}

// Verify returns the user that enters a code, with a new account if the address has none. It
// returns Unauthenticated, always with the same text, unless the code is valid. Of concurrent
// calls with the same code one succeeds.
func (u *Users) Verify(ctx context.Context, email, code string) (User, error) {
	address, err := account.ParseAddress(email)
	if err != nil {
		return User{}, wrongCode()
	}
	var next account.State
	err = u.retry(ctx, "check code", func(ctx context.Context) error {
		a, now := u.cfg.Directory.Account(address), u.cfg.Now()
		if !a.Live(now) {
			return wrongCode()
		}
		if !hmac.Equal([]byte(u.hash(address, a.Code.Nonce, code)), []byte(a.Code.Hash)) {
			if _, err := u.cfg.Directory.Append(ctx, &a, account.Missed{}); err != nil {
				return err
			}
			return wrongCode()
		}
		var err error
		next, err = u.cfg.Directory.Append(ctx, &a, account.Verified{Tenant: account.NewTenant(), At: now})
		return err
	})
	return userOf(&next), err
}

func wrongCode() error {
	return kind.Coded(kind.Unauthenticated, "check code", "", "invalid_code", "the code is wrong, or it is not valid any more")
}

func userOf(a *account.State) User { return User{a.Tenant, a.Address, a.Created} }

// User returns the user of a principal. A tenant that was not made by signing up is as old as
// its first key.
func (u *Users) User(p core.Principal) User {
	if a, ok := u.cfg.Directory.AccountOf(p.Tenant); ok {
		return userOf(&a)
	}
	out := User{Tenant: p.Tenant}
	if keys := u.cfg.Core.View.Keys(p.Tenant); len(keys) > 0 {
		out.Created = keys[0].Issued
	}
	return out
}
