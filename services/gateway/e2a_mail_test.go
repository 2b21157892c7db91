package gateway_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	smtp "github.com/emersion/go-smtp"

	"github.com/millrace/millrace/services/gateway"
)

// relay is an SMTP server that keeps the mail that it accepts.
type relay struct {
	url    string
	mails  chan sentMail
	refuse atomic.Bool
}

type sentMail struct{ from, to, text string }

// session is a connection to a relay.
type session struct {
	relay *relay
	mail  sentMail
}

func (s *session) Reset()        { s.mail = sentMail{} }
func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.mail.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if s.relay.refuse.Load() {
		return errors.New("refused")
	}
	s.mail.to += to
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	s.mail.text = string(raw)
	s.relay.mails <- s.mail
	return err
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	r := &relay{mails: make(chan sentMail, 1000)}
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{relay: r}, nil }))
	srv.Domain = "localhost"
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	r.url = "smtp://" + ln.Addr().String()
	return r
}

// mailer returns what a gateway sends mail to the relay with.
func (r *relay) mailer(t *testing.T) gateway.Mailer {
	t.Helper()
	m, err := gateway.NewRelay(r.url, "millrace@example.com", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var sixDigits = regexp.MustCompile(`code is (\d{6})\.`)

// code returns the code of the next mail, which must be to an address.
func (r *relay) code(t *testing.T, to string) string {
	t.Helper()
	select {
	case m := <-r.mails:
		got := sixDigits.FindStringSubmatch(m.text)
		if m.to != to || m.from != "millrace@example.com" || got == nil {
			t.Fatalf("mail from %s to %s: %s", m.from, m.to, m.text)
		}
		return got[1]
	default:
		t.Fatalf("no mail to %s", to)
		return ""
	}
}

// silentRelay accepts connections and sends nothing.
func silentRelay(t *testing.T) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return "smtp://" + ln.Addr().String()
}

func mustPrefixes(t *testing.T, all ...string) (out []netip.Prefix) {
	t.Helper()
	for _, s := range all {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}
