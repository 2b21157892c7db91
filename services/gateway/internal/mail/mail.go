// Package mail sends mail to people, through a relay or to a development mailbox.
//
// # Delivery
// Send returns when the relay has accepted the mail, or with an error after [Timeout]. It makes
// one attempt: the user requests another code.
//
// # Encryption
// A relay is used with TLS only, unless it is on this machine.
package mail

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	mail "github.com/wneessen/go-mail"

	"github.com/millrace/millrace/events/kind"
)

// Timeout bounds one mail.
const Timeout = 10 * time.Second

const (
	defaultPort = 587
	tlsPort     = 465
)

// Relay sends mail through an SMTP server. Its methods may be called concurrently.
type Relay struct {
	host    string
	from    string
	tls     bool // from the start
	options []mail.Option
	timeout time.Duration
}

// NewRelay returns a relay for a URL: smtp://[USER:PASSWORD@]HOST[:PORT] with STARTTLS, or
// smtps:// with TLS from the start. from is the sender's address. Errors do not contain the
// password. timeout bounds one mail; 0: Timeout.
func NewRelay(raw, from string, timeout time.Duration) (*Relay, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, kind.New(kind.Invalid, "parse relay", "", "the URL is not valid") // the cause contains the password
	}
	if u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" {
		return nil, kind.New(kind.Invalid, "parse relay", "", "the URL must be smtp://HOST[:PORT] or smtps://HOST[:PORT], with USER:PASSWORD@ before the host if the relay requires them")
	}
	if err := mail.NewMsg().From(from); err != nil {
		return nil, kind.Newf(kind.Invalid, "parse relay", "", "the sender %q is not a mail address", from)
	}
	if timeout == 0 {
		timeout = Timeout
	}
	r := &Relay{host: u.Hostname(), from: from, timeout: timeout}
	r.options = []mail.Option{mail.WithTimeout(timeout), mail.WithTLSPolicy(policy(u.Hostname()))}
	port := defaultPort
	if u.Scheme == "smtps" {
		r.tls, port = true, tlsPort
		// The client adds STARTTLS to a connection that already has TLS if the policy is mandatory.
		r.options = append(r.options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return nil, kind.Newf(kind.Invalid, "parse relay", "", "the port %q is not a number", p)
		}
	}
	r.options = append(r.options, mail.WithPort(port))
	if u.User != nil {
		password, _ := u.User.Password()
		r.options = append(r.options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(u.User.Username()), mail.WithPassword(password))
	}
	return r, nil
}

// policy returns the use of STARTTLS with a host: a relay on this machine may have none.
func policy(host string) mail.TLSPolicy {
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return mail.TLSOpportunistic
	}
	return mail.TLSMandatory
}

// Send sends a mail to one address.
func (r *Relay) Send(ctx context.Context, to, subject, text string) error {
	m := mail.NewMsg()
	if err := m.From(r.from); err != nil {
		return err
	}
	if err := m.To(to); err != nil {
		return err
	}
	m.Subject(subject)
	m.SetBodyString(mail.TypeTextPlain, text)
	m.SetMessageID()
	m.SetDate()
	d := dialer{until: time.Now().Add(r.timeout), host: r.host, tls: r.tls}
	defer d.close()
	c, err := mail.NewClient(r.host, append(slices.Clip(r.options), mail.WithDialContextFunc(d.dial))...)
	if err != nil {
		return err
	}
	session, err := c.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return err
	}
	if err := c.SendWithSMTPClient(session, m); err != nil {
		return err
	}
	_ = c.CloseWithSMTPClient(session) // the relay has accepted the mail
	return nil
}

// Mailbox prints mail for developers. Its methods may be called concurrently.
type Mailbox struct {
	mu sync.Mutex
	to io.Writer
}

// NewMailbox returns a mailbox that prints to w.
func NewMailbox(w io.Writer) *Mailbox { return &Mailbox{to: w} }

// Send prints a mail.
func (b *Mailbox) Send(_ context.Context, to, subject, text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := fmt.Fprintf(b.to, "\nmail to %s (not sent: no relay is set, see --smtp)\nsubject: %s\n\n%s\n", to, subject, text)
	return err
}
