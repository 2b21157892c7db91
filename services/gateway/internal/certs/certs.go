package certs

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Pair is a certificate with its key, in two PEM files. Its methods may be called concurrently.
type Pair struct {
	cert, key string // names of the files
	log       *slog.Logger

	mu   sync.Mutex
	seen [2]fs.FileInfo // files at the last attempt to read them
	pair *tls.Certificate
}

// Open reads the files. log receives warnings about files that have changed and cannot be used; it
// may be nil.
func Open(cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	now, err := p.stat()
	if err != nil {
		return nil, err
	}
	p.seen = now
	p.pair, err = p.read()
	return p, err
}

// Config returns a configuration of servers that use the pair.
func (p *Pair) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: p.certificate}
}

// certificate returns the certificate for a handshake.
func (p *Pair) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := p.stat()
	if err == nil && !changed(p.seen, now) {
		return p.pair, nil
	}
	if err == nil {
		var pair *tls.Certificate
		if pair, err = p.read(); err == nil {
			p.pair = pair
			p.log.Info("TLS certificate changed", "file", p.cert)
		}
	}
	if err != nil && changed(p.seen, now) {
		p.log.Warn("load new TLS certificate failed, the old one stays", "err", err)
	}
	p.seen = now
	return p.pair, nil
}

// stat returns the state of both files; nil for one that does not exist.
func (p *Pair) stat() (now [2]fs.FileInfo, err error) {
	for i, name := range [...]string{p.cert, p.key} {
		info, bad := os.Stat(name)
		if now[i] = info; bad != nil {
			now[i], err = nil, cmp.Or(err, bad)
		}
	}
	return now, err
}

// changed reports whether a file is another one, or was written.
func changed(a, b [2]fs.FileInfo) bool {
	for i := range a {
		switch x, y := a[i], b[i]; {
		case x == nil && y == nil:
		case x == nil || y == nil, !os.SameFile(x, y), x.Size() != y.Size(), !x.ModTime().Equal(y.ModTime()):
			return true
		}
	}
	return false
}

func (p *Pair) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
	}
	return &pair, nil
}
