package gateway

import (
	"io"
	"net/netip"
	"time"

	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/mail"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// UsersConfig configures how people sign up and log in, and how many requests they may send to e2a's
// API.
type UsersConfig struct {
	Mail      Mailer           // sends codes; nil: no code can be sent
	TestMode  bool             // addresses in e2a-qa.test get their codes in the response; only on a loopback address
	PerMinute int              // maximum requests of a source per minute; default 20
	Requests  int              // maximum requests of a tenant per minute; default 6000
	Catalogue int              // the same for the catalogue of templates, which has a limit of its own; default 120
	Proxies   []netip.Prefix   // proxies whose X-Forwarded-For is trusted
	Now       func() time.Time // for tests; default time.Now
}

// Mailer sends mail.
type Mailer = accounts.Mailer

// NewRelay returns a Mailer that sends mail through a relay, smtp://[USER:PASSWORD@]HOST[:PORT] or
// smtps://. from is the sender's address. timeout bounds one mail; default 10 s.
func NewRelay(url, from string, timeout time.Duration) (Mailer, error) {
	return mail.NewRelay(url, from, timeout)
}

// NewMailbox returns a Mailer that prints mail to w.
func NewMailbox(w io.Writer) Mailer { return mail.NewMailbox(w) }

// newUsers returns the operations of people.
func newUsers(cfg *Config, ops *operations.Operations) *accounts.Users {
	u := &cfg.Users
	return accounts.NewUsers(accounts.UsersConfig{
		Core: ops.Core, Directory: cfg.Log.Directory(), Mail: u.Mail, TestMode: u.TestMode, PerMinute: u.PerMinute, Now: u.Now, Slog: cfg.Slog,
	})
}
