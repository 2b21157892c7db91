package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"sync"
	"time"
)

// Authority issues the certificates that the proxy presents for the domains of
// transforms. Sandboxes with such domains trust it; its key does not leave
// the host. Its methods may be called concurrently.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	text []byte // the certificate as PEM

	leafKey *ecdsa.PrivateKey // shared by all leaves; it is lost when the process ends

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	authorityLate = authorityLife / 10 // remaining lifetime at which it is replaced
	leafLife      = 30 * 24 * time.Hour
	leafLate      = leafLife / 2
	clockSkew     = 24 * time.Hour // a sandbox's clock may be late, as after a memory snapshot
	maxLeaves     = 1024

	pemCertificate, pemKey = "CERTIFICATE", "EC PRIVATE KEY"
)

// OpenAuthority reads the authority from a file, or creates one. Only this process's
// user may read the file.
func OpenAuthority(path string) (*Authority, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		if a, err := parseAuthority(text); err == nil && time.Until(a.cert.NotAfter) > authorityLate {
			return a, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err = newAuthority()
	if err != nil {
		return nil, err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, err
	}
	return parseAuthority(text)
}

func newAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "Millrace egress"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(authorityLife),
	}, nil, key, key)
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: raw})...), nil
}

// sign makes a certificate for a key; without a parent it is self-signed.
func sign(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	c.SerialNumber, c.NotBefore = serial, time.Now().Add(-clockSkew)
	if parent == nil {
		parent = c
	}
	return x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
}

func parseAuthority(text []byte) (*Authority, error) {
	cert, rest := pem.Decode(text)
	if cert == nil || cert.Type != pemCertificate {
		return nil, errors.New("no certificate")
	}
	key, _ := pem.Decode(rest)
	if key == nil || key.Type != pemKey {
		return nil, errors.New("no key")
	}
	a := &Authority{text: pem.EncodeToMemory(cert), leaves: make(map[string]*tls.Certificate)}
	var err error
	if a.cert, err = x509.ParseCertificate(cert.Bytes); err != nil {
		return nil, err
	}
	if a.key, err = x509.ParseECPrivateKey(key.Bytes); err != nil {
		return nil, err
	}
	if !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("the key does not match the certificate")
	}
	a.leafKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return a, err
}

// PEM returns the certificate to trust; the caller must not change it.
func (a *Authority) PEM() []byte { return a.text }

// leaf returns the certificate for a name.
func (a *Authority) leaf(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil && time.Until(c.Leaf.NotAfter) > leafLate {
		return c, nil
	}
	raw, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name[:min(len(name), 64)]}, DNSNames: []string{name}, NotAfter: time.Now().Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, a.leafKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{raw, a.cert.Raw}, PrivateKey: a.leafKey, Leaf: leaf}
	a.leaves[name] = c
	return c, nil
}
