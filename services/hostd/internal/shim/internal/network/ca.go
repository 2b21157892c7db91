package network

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/regular"
)

// caFiles has the paths of the proxy's certificate, with which programs verify connections
// that the proxy terminates. Without a certificate both are empty.
type caFiles struct {
	cert   string // the certificate alone
	bundle string // the certificate and the sandbox's other trusted ones
}

// bundlePaths are the usual paths of a system's trusted certificates, Debian's first.
var bundlePaths = [...]string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// certPaths are candidates for the certificate's path, of which the first writable one is
// used: the directory of Debian's update-ca-certificates, or else a world-writable one.
var certPaths = [...]string{"/usr/local/share/ca-certificates/millrace-egress.crt", "/run/millrace-egress.crt", "/tmp/millrace-egress.crt"}

const maxBundle = 4 << 20

// installCA installs the certificate where programs look for trusted ones. If the system's
// bundle is read-only, a copy is made beside the certificate and named in the environment.
func installCA(ca []byte) caFiles {
	if len(ca) == 0 {
		return caFiles{}
	}
	var t caFiles
	for _, path := range certPaths {
		if writeAtomic(path, ca) == nil {
			t.cert = path
			break
		}
	}
	if t.cert == "" {
		return caFiles{}
	}
	t.bundle = t.cert
	path, text := systemBundle()
	if !bytes.Contains(text, ca) {
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, ca...)
	}
	for _, path := range [...]string{path, t.cert + ".bundle"} {
		if writeAtomic(path, text) == nil {
			t.bundle = path
			break
		}
	}
	return t
}

// systemBundle reads the system's bundle; path is where it is, or should be.
func systemBundle() (path string, text []byte) {
	for _, path := range bundlePaths {
		if text, _, err := regular.Read(path, maxBundle); err == nil && len(text) <= maxBundle {
			return path, text
		}
	}
	return bundlePaths[0], nil
}

// writeAtomic writes a world-readable file atomically. A file with the right content is left alone.
func writeAtomic(path string, text []byte) error {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(text)) {
		if old, _, err := regular.Read(path, len(text)); err == nil && bytes.Equal(old, text) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".millrace-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// setEnv sets the variables by which programs find a certificate outside the system's bundle.
func (t caFiles) setEnv(env map[string]string) {
	if t.cert == "" {
		return
	}
	env["NODE_EXTRA_CA_CERTS"] = t.cert
	for _, name := range [...]string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"} {
		env[name] = t.bundle
	}
}
