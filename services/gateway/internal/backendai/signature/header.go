package signature

import (
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// Codes of errors, which are the names of Backend.AI's error types.
const (
	BadParams = "invalid-auth-params"
	Failed    = "auth-failed"
)

// Credential is the content of an Authorization header.
type Credential struct {
	Method    string // as sent; one of methods
	AccessKey string
	Signature string // in hex, as sent
}

// methods are the hash functions by the names of signing methods.
var methods = map[string]func() hash.Hash{
	"HMAC-SHA256": sha256.New,
	"HMAC-SHA384": sha512.New384,
	"HMAC-SHA512": sha512.New,
}

// Parse parses an Authorization header.
func Parse(header string) (Credential, error) {
	scheme, list, ok := strings.Cut(header, " ")
	if !ok || scheme != "BackendAI" && scheme != "Sorna" {
		return Credential{}, invalid("the Authorization header is not one of the scheme BackendAI")
	}
	params := make(map[string]string, 2)
	for part := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if _, again := params[name]; !ok || again {
			return Credential{}, invalid("the parameters of the Authorization header are malformed")
		}
		params[name] = strings.TrimSpace(value)
	}
	key, sig, ok := strings.Cut(params["credential"], ":")
	c := Credential{Method: params["signMethod"], AccessKey: key, Signature: sig}
	switch {
	case !ok || key == "" || sig == "":
		return Credential{}, invalid("the Authorization header has no credential")
	case methods[c.Method] == nil:
		return Credential{}, invalid("the signing method is not supported: must be HMAC-SHA256")
	}
	return c, nil
}

func invalid(msg string) error {
	return kind.Coded(kind.Invalid, "check signature", "", BadParams, msg)
}
