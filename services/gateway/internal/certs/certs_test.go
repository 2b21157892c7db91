package certs_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/certs"
	"github.com/millrace/millrace/services/gateway/internal/certs/certstest"
)

// subject performs a handshake and returns the name in the server's certificate.
func subject(t *testing.T, server *tls.Config, client *tls.Config) string {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() {
		s := tls.Server(a, server)
		s.Handshake()
		io.Copy(io.Discard, s)
	}()
	c := tls.Client(b, client)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	state := c.ConnectionState()
	if state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("protocol %q", state.NegotiatedProtocol)
	}
	return state.PeerCertificates[0].Subject.CommonName
}

// Each handshake uses the newest pair that can be used; a broken one is logged once.
func TestTheNewestUsablePairIsServed(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(name string, b []byte) {
		t.Helper()
		next := name + ".next" // as tools that renew certificates do
		if err := os.WriteFile(next, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, name); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	firstCert, firstKey := ca.Issue(t, "first", "a.test")
	secondCert, secondKey := ca.Issue(t, "second", "a.test")
	write(certFile, firstCert)
	write(keyFile, firstKey)
	var logs bytes.Buffer
	p, err := certs.Open(certFile, keyFile, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server, client := p.Config(), &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", NextProtos: []string{"h2", "http/1.1"}}
	steps := []struct {
		name   string
		change func()
		want   string
		warns  int
	}{
		{"unchanged", func() {}, "first", 0},
		{"another certificate, the old key", func() { write(certFile, secondCert) }, "first", 1},
		{"still", func() {}, "first", 1},
		{"its key, too", func() { write(keyFile, secondKey) }, "second", 1},
		{"no PEM", func() { write(keyFile, []byte("x")) }, "second", 2},
		{"missing", func() { remove(keyFile) }, "second", 3},
		{"still missing", func() {}, "second", 3},
		{"the first pair again", func() { write(certFile, firstCert); write(keyFile, firstKey) }, "first", 3},
	}
	for _, s := range steps {
		s.change()
		if got := subject(t, server, client); got != s.want {
			t.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
		if n := strings.Count(logs.String(), "level=WARN"); n != s.warns {
			t.Errorf("%s: %d warnings, want %d\n%s", s.name, n, s.warns, &logs)
		}
	}
}

func TestAPairMustBeUsableAtFirst(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "cert.pem")
	if _, err := certs.Open(name, name, nil); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.Open(name, name, nil); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("no PEM: %v", err)
	}
}

func TestOldVersionsOfTLSAreRefused(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t)
	cert, key := ca.Issue(t, "x", "a.test")
	c, k := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	if err := os.WriteFile(c, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k, key, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := certs.Open(c, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Server(a, p.Config()).Handshake()
	old := &tls.Config{RootCAs: ca.Pool(), ServerName: "a.test", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if err := tls.Client(b, old).Handshake(); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}
