package e2e_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestWorkloadIdentity creates a sandbox by the released SDK whose requests carry tokens. A
// server verifies them as clouds do, with the keys of the token's issuer and no code of
// Millrace. No token is in the sandbox, in a file or in output.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("without isolation sandboxes use the host's network")
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	world := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		who, err := verify(token, "sts.amazonaws.com")
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[token] {
			http.Error(w, "the token was used before", http.StatusUnauthorized)
			return
		}
		seen[token] = true
		io.WriteString(w, who)
	}))
	t.Cleanup(world.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: world.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	up := rig.NewUp(t, rig.Options{
		Args: []string{"--egress", "internet", "--egress-allow", "127.0.0.1", "--egress-dns", rig.DNS(t, map[string]string{"example.com": "127.0.0.1"}), "--log-level", "debug"},
		Env:  []string{"SSL_CERT_FILE=" + roots},
	})
	_, port, _ := net.SplitHostPort(world.Listener.Addr().String())
	runNode(t, up.API, "identity.mjs", "https://example.com:"+port+"/")
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 3 {
		t.Errorf("received %d tokens", len(seen))
	}
	for token := range seen {
		if strings.Contains(up.Dump(), token) {
			t.Error("a token was printed")
		}
		if err := grepTree(up.Data, token); err != nil {
			t.Error(err)
		}
	}
}

// verify verifies a token with its issuer's keys and returns the token's sandbox.
func verify(token, audience string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("no token: %q", token)
	}
	var head struct{ Alg, Kid, Typ string }
	var c struct {
		Iss, Sub, Aud, Jti string
		Iat, Exp           int64
		Sandbox            string `json:"sandbox_id"`
		Template           string `json:"template_id"`
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || part(parts[0], &head) != nil || part(parts[1], &c) != nil {
		return "", fmt.Errorf("an unreadable token: %q", token)
	}
	var conf struct {
		Issuer string
		Keys   string `json:"jwks_uri"`
	}
	var set struct {
		Keys []struct{ Kid, Kty, N, E string }
	}
	if err := fetch(c.Iss+"/.well-known/openid-configuration", &conf); err != nil || conf.Issuer != c.Iss {
		return "", fmt.Errorf("the issuer of %q is %q: %w", c.Iss, conf.Issuer, err)
	}
	if err := fetch(conf.Keys, &set); err != nil {
		return "", err
	}
	for _, k := range set.Keys {
		if k.Kid != head.Kid || k.Kty != "RSA" || head.Alg != "RS256" {
			continue
		}
		n, err1 := base64.RawURLEncoding.DecodeString(k.N)
		e, err2 := base64.RawURLEncoding.DecodeString(k.E)
		if err1 != nil || err2 != nil {
			return "", fmt.Errorf("the key %+v", k)
		}
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
		if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig); err != nil {
			return "", err
		}
		now := time.Now().Unix()
		if c.Aud != audience || c.Jti == "" || c.Iat > now+1 || c.Exp <= now || c.Exp > now+600 ||
			c.Sub != "spiffe://127.0.0.1/team/default/template/"+c.Template+"/sandbox/"+c.Sandbox {
			return "", fmt.Errorf("the claims %+v", c)
		}
		return c.Sandbox, nil
	}
	return "", fmt.Errorf("no key %q in %+v", head.Kid, set)
}

func part(s string, v any) error {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func fetch(url string, v any) error {
	r, err := http.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, r.Status)
	}
	return json.NewDecoder(r.Body).Decode(v)
}
