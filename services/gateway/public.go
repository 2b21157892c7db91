package gateway

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/certs"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// PublicConfig is how clients reach the gateway.
type PublicConfig struct {
	Domain string // domain of sandboxes' hosts in responses; default: none, clients use their own
	Issuer string // URL at which others reach this gateway to verify sandboxes' tokens; default: its address, if it listens on one only

	// Cert and Key are the PEM files of a TLS certificate and its key. Files that change are read
	// again. Default: no TLS.
	Cert, Key string

	// APIHost and RuntimeHost are host names, with the port that clients use if it is not the usual
	// one: e2a's routes are served on the first, connections to the runtimes of conversations on
	// the second, which serves nothing else. Default: every host serves everything.
	APIHost, RuntimeHost string
	// TLSProxy says that clients reach the gateway through a proxy with TLS.
	TLSProxy bool
}

// hosts returns the names of the gateway's hosts.
func (p *PublicConfig) hosts() family.Hosts {
	return family.Hosts{API: p.APIHost, Runtime: p.RuntimeHost}
}

// Secure reports whether clients use TLS.
func (p *PublicConfig) Secure() bool { return p.TLS() || p.TLSProxy }

// TLS reports whether the gateway serves TLS.
func (p *PublicConfig) TLS() bool { return p.Cert != "" }

// Check returns an error if the settings contradict each other or a file is missing.
func (p *PublicConfig) Check() error {
	if (p.Cert == "") != (p.Key == "") {
		return errors.New("--tls-cert and --tls-key must both be set, or neither")
	}
	if (p.APIHost == "") != (p.RuntimeHost == "") {
		return errors.New("--api-host and --rt-host must both be set, or neither")
	}
	if p.APIHost != "" && family.Hostname(p.APIHost) == family.Hostname(p.RuntimeHost) {
		return fmt.Errorf("--api-host and --rt-host must be different hosts, not both %s", family.Hostname(p.APIHost))
	}
	for flag, name := range map[string]string{"--api-host": p.APIHost, "--rt-host": p.RuntimeHost} {
		if strings.ContainsAny(name, "/@ ") {
			return fmt.Errorf("%s %s: must be HOST or HOST:PORT", flag, name)
		}
	}
	for flag, name := range map[string]string{"--tls-cert": p.Cert, "--tls-key": p.Key} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// Scheme returns the scheme of the gateway's own URLs.
func (p *PublicConfig) Scheme() string {
	if p.TLS() {
		return "https"
	}
	return "http"
}

// wrap returns a listener whose connections the server can use, with TLS if there is a certificate.
func wrap(ln net.Listener, cfg *Config) (net.Listener, error) {
	if !cfg.Public.TLS() {
		return httpconn.Listen(ln), nil
	}
	pair, err := certs.Open(cfg.Public.Cert, cfg.Public.Key, cfg.Slog)
	if err != nil {
		return nil, err
	}
	return httpconn.ListenTLS(ln, pair.Config()), nil
}
