package bundle

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// The limits.
const (
	MaxBundles  = 50       // of a tenant
	MaxKeys     = 50       // of a bundle
	MaxValue    = 64 << 10 // bytes of a value
	MaxKey      = 128      // bytes of the name of a key
	MaxName     = 63       // bytes of the name of a bundle
	MaxResolved = 10       // bundles that are resolved at once
)

const valuesOp = "check values"

// reserved are names of variables that the platform sets. LLM_API_KEY is not one of them: bundles
// are the only way to set it.
var reserved = map[string]bool{
	"AGENT_TYPE": true, "LLM_KEY": true, "LLM_MODEL": true, "TASK": true, "SESSION_ID": true, "AGENT_CMD": true,
	"AGENT_SESSION_MODE": true, "E2A_PERSISTENCE_URL": true, "E2A_PERSISTENCE_AUTH_HEADER": true,
}

// Name is the name of a bundle, unique in its tenant.
type Name string

// Generation is a set of values of a bundle, which is never changed. It is a token of a subject.
type Generation string

// Value is one sealed value.
type Value struct {
	Key    string
	Sealed seal.Text
}

// Place returns the place of a sealed value.
func Place(tenant string, g Generation, key string) seal.Place {
	return seal.Place{Tenant: tenant, Record: "bundle " + string(g), Field: key}
}

// ParseName checks the name of a bundle from a client.
func ParseName(s string) (Name, error) {
	if s == "" || len(s) > MaxName || s[0] == '-' || !all(s, func(c byte) bool { return lower(c) || digit(c) || c == '-' }) {
		return "", kind.New(kind.Invalid, "parse name", "", "name must match ^[a-z0-9][a-z0-9-]{0,62}$")
	}
	return Name(s), nil
}

// CheckValues returns Invalid unless the values may be those of a bundle. The error of a value
// names its key.
func CheckValues(values map[string]string) error {
	switch n := len(values); {
	case n == 0:
		return kind.New(kind.Invalid, valuesOp, "", "values must be an object with at least one key")
	case n > MaxKeys:
		return kind.Newf(kind.Invalid, valuesOp, "", "values has %d keys, the limit is %d", n, MaxKeys)
	}
	for _, key := range Keys(values) {
		switch value := values[key]; {
		case !validKey(key):
			return kind.New(kind.Invalid, valuesOp, "", "the name of a key must match ^[A-Za-z_][A-Za-z0-9_]{0,127}$")
		case reserved[key]:
			return kind.Newf(kind.Invalid, valuesOp, "", "the key %s is reserved", key)
		case len(value) > MaxValue:
			return kind.Newf(kind.Invalid, valuesOp, "", "the value of %s has %d bytes, the limit is %d", key, len(value), MaxValue)
		case strings.IndexByte(value, 0) >= 0:
			return kind.Newf(kind.Invalid, valuesOp, "", "the value of %s has a NUL byte, which no variable can have", key)
		}
	}
	return nil
}

// Keys returns the names of the keys of values, in order.
func Keys(values map[string]string) []string { return slices.Sorted(maps.Keys(values)) }

func validKey(s string) bool {
	return s != "" && len(s) <= MaxKey && !digit(s[0]) && all(s, func(c byte) bool { return lower(c|0x20) || digit(c) || c == '_' })
}

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) bool { return c >= 'a' && c <= 'z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }
