package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/gateway"
)

// users holds the settings of signing up and logging in.
type users struct {
	smtp, from string
	proxies    []string
	perMinute  int
	requests   int // of a tenant per minute
	catalogue  int
	testMode   bool
}

func (u *users) flags(f *pflag.FlagSet) {
	f.StringVar(&u.smtp, "smtp", "", "URL of the relay for mail to users, smtp://[USER:PASSWORD@]HOST[:PORT] or smtps://; prefer MILLRACE_SMTP (default none: up prints the mail)")
	f.StringVar(&u.from, "mail-from", "", "sender's address of mail to users (required with --smtp)")
	f.StringSliceVar(&u.proxies, trustedProxy, nil, "prefixes of proxies whose X-Forwarded-For names the client, such as 10.1.0.0/16 (default none)")
	f.IntVar(&u.perMinute, "sign-up-rate", defaultSignUpRate, "maximum requests per minute to sign up or log in from one address, or one /64 of IPv6")
	f.IntVar(&u.requests, "tenant-rate", 6000, "maximum requests of a tenant per minute to e2a's API")
	f.IntVar(&u.catalogue, "catalogue-rate", 120, "maximum requests of a tenant per minute to e2a's catalogue of templates")
	f.BoolVar(&u.testMode, "sign-up-test-mode", false, "return the codes of addresses in e2a-qa.test in the response, and send them no mail; only on a loopback address")
}

const (
	trustedProxy      = "trusted-proxy"
	defaultSignUpRate = 20
	maxSignUpRate     = 10_000
)

// config returns the settings. Without a relay, mail is printed to mailbox; nil: no mail is sent.
func (u *users) config(mailbox io.Writer) (c gateway.UsersConfig, err error) {
	c.TestMode, c.PerMinute, c.Requests, c.Catalogue = u.testMode, u.perMinute, u.requests, u.catalogue
	if err := cmp.Or(atLeastOne("tenant-rate", u.requests), atLeastOne("catalogue-rate", u.catalogue)); err != nil {
		return c, err
	}
	if u.perMinute < 1 || u.perMinute > maxSignUpRate {
		return c, fmt.Errorf("--sign-up-rate: %d must be from 1 to %d", u.perMinute, maxSignUpRate)
	}
	if c.Proxies, err = prefixes(trustedProxy, u.proxies); err != nil {
		return c, err
	}
	switch {
	case u.smtp == "" && mailbox != nil:
		c.Mail = gateway.NewMailbox(mailbox)
	case u.smtp == "":
	case u.from == "":
		return c, errors.New("--mail-from is required with --smtp")
	default:
		if c.Mail, err = gateway.NewRelay(u.smtp, u.from, 0); err != nil {
			return c, fmt.Errorf("--smtp: %w", err)
		}
	}
	return c, nil
}

func atLeastOne(flag string, n int) error {
	return firstInvalid(setting{flag, n, n >= 1, "at least 1"})
}
