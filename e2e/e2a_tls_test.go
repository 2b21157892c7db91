package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// authority issues certificates for 127.0.0.1 and the names that tests use.
type authority struct {
	t    *testing.T
	file string // its certificate
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem"), pool: x509.NewCertPool(), key: key}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	text := a.sign(a.cert, &key.PublicKey)
	a.pool.AppendCertsFromPEM(text)
	must(t, os.WriteFile(a.file, text, 0o600))
	return a
}

func (a *authority) sign(c *x509.Certificate, public *ecdsa.PublicKey) []byte {
	a.t.Helper()
	a.next++
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(a.next), time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, c, a.cert, public, a.key)
	must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// issue writes a new certificate and its key, one after the other.
func (a *authority) issue(subject, certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	text := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: subject}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{"localhost", "api.localhost", "rt.localhost", "example.com"},
	}, &key.PublicKey)
	must(a.t, os.WriteFile(certFile, text, 0o600))
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	must(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

// client returns a client that trusts the authority.
func (a *authority) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool}}}
}

// served returns the name of the certificate that a new connection gets.
func (a *authority) served(addr string) string {
	a.t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: a.pool, NextProtos: []string{"h2", "http/1.1"}})
	must(a.t, err)
	defer c.Close()
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		a.t.Errorf("protocol %q", p)
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// newTLS starts up with a certificate of the authority.
func newTLS(t *testing.T, a *authority, args ...string) (u *rig.Up, certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.issue("first", certFile, keyFile)
	return rig.NewUp(t, rig.Options{Args: append([]string{"--tls-cert", certFile, "--tls-key", keyFile}, args...), HTTPS: a.client()}), certFile, keyFile
}

// E-002: clients of every protocol use TLS, and a new certificate ends no connection.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	u, certFile, keyFile := newTLS(t, ca)
	addr := strings.TrimPrefix(u.URL, "https://")
	box := u.Create(t, "timeout", 300)

	// A stream, before and after the certificate changes.
	stream := u.Commands(t, box.ID, "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done")
	stream.Until(t, func(l *rig.Line) bool { return strings.Contains(string(l.Bytes()), "begun") })
	if got := ca.served(addr); got != "first" {
		t.Errorf("certificate %q", got)
	}
	ca.issue("second", certFile, keyFile)
	if got := ca.served(addr); got != "second" {
		t.Errorf("after a change: certificate %q", got)
	}
	must(t, os.WriteFile(keyFile, []byte("broken"), 0o600))
	if got := ca.served(addr); got != "second" {
		t.Errorf("after a broken change: certificate %q", got)
	}
	if !strings.Contains(u.Log(), "load new TLS certificate failed") {
		t.Error("a broken key was not logged")
	}
	u.Commands(t, box.ID, "touch /tmp/go").All(t)
	rest := stream.All(t)
	if end := rig.End(t, rest); *end.ExitCode != 0 || rig.Output(rest, "stdout") != "done\n" {
		t.Errorf("the stream: %v", rest)
	}

	// A file in both directions.
	content := make([]byte, 20<<20)
	rand.Read(content)
	u.Want(t, 200, http.MethodPost, "/files?path=/tmp/big", content, "E2b-Sandbox-Id", box.ID, "Content-Type", "application/octet-stream")
	if got := u.Want(t, 200, http.MethodGet, "/files?path=/tmp/big", nil, "E2b-Sandbox-Id", box.ID); !bytes.Equal(got.Body, content) {
		t.Errorf("read %d bytes of %d", len(got.Body), len(content))
	}

	// WebSockets.
	dialCodex(t, u.API, "/codex/"+box.ID).begin("")
	b := newBackendOn(t, u.API)
	b.newSession("base", "e2e-tls")
	ws := b.dial("/stream/session/e2e-tls/pty")
	must(t, ws.WriteJSON(map[string]any{"type": "stdin", "chars": base64.StdEncoding.EncodeToString([]byte("echo $((20+22))\r"))}))
	for got := ""; !strings.Contains(got, "42"); {
		var m struct {
			Type string
			Data []byte
		}
		must(t, ws.ReadJSON(&m))
		got += string(m.Data)
	}

	// Programs.
	cli := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), rig.Binary(t), "run", "--sandbox", box.ID, "echo hello")
		cmd.Env = append([]string{"MILLRACE_URL=" + u.URL, "MILLRACE_API_KEY=" + u.Key, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := cli("SSL_CERT_FILE=" + ca.file); err != nil || !strings.Contains(out, "hello") {
		t.Errorf("run: %v %s", err, out)
	}
	if out, err := cli(); err == nil || !strings.Contains(out, "SSL_CERT_FILE") {
		t.Errorf("run without the authority: %v %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "--cacert", ca.file, u.URL+"/.well-known/openid-configuration").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"issuer":"https://`) {
		t.Errorf("curl: %v %s", err, out)
	}
	resp, err := http.Get("http://" + addr + "/livez")
	must(t, err)
	defer resp.Body.Close()
	if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 400 || !strings.Contains(string(raw), "https://") {
		t.Errorf("without TLS: %s %s %v", resp.Status, raw, err)
	}
	if !strings.Contains(u.Log(), "millrace is up: https://") {
		t.Errorf("up printed no https URL")
	}
}
