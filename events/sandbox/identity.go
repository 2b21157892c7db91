package sandbox

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
)

// Identity lists the tokens that a sandbox's requests may carry, and their issuer.
type Identity struct {
	Issuer string  // URL at which verifiers of tokens fetch the keys
	Tokens []Token // nil: no identity
}

// Token describes a token; a new one is made for each request that names it.
type Token struct {
	Name     string
	Audience string // intended verifier
	Type     string // TokenJWT
}

// TokenJWT is the only type of token, by E2B's name: a JSON web token whose subject is a
// SPIFFE id.
const TokenJWT = "JWT-SVID"

// Limits of an identity. E2B documents the number of tokens.
const (
	maxTokens    = 5
	maxTokenName = 128
	maxAudience  = 1024
)

// Check validates an identity from outside. Its errors are Invalid.
func (i *Identity) Check() error {
	if len(i.Tokens) > maxTokens {
		return badToken("%d tokens, the limit is %d", len(i.Tokens), maxTokens)
	}
	for _, t := range i.Tokens {
		switch {
		case t.Name == "" || len(t.Name) > maxTokenName || strings.ContainsAny(t.Name, "{}") || strings.ContainsFunc(t.Name, unicode.IsControl):
			return badToken("the name %.128q must have 1 to %d bytes, without braces and control characters", t.Name, maxTokenName)
		case t.Audience == "" || len(t.Audience) > maxAudience || !utf8.ValidString(t.Audience):
			return badToken("%s: audience must have 1 to %d bytes", t.Name, maxAudience)
		case t.Type != TokenJWT:
			return badToken("%s: tokenType must be %s, it is %.64q", t.Name, TokenJWT, t.Type)
		}
	}
	return nil
}

func badToken(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "check identity", "", "iam.tokens: "+format, args...)
}

// Token returns the token with that name.
func (i *Identity) Token(name string) (Token, bool) {
	for _, t := range i.Tokens {
		if t.Name == name {
			return t, true
		}
	}
	return Token{}, false
}

// ParseIssuer validates the URL of an issuer, and returns it without a trailing slash. It
// returns Invalid for any other text, and for a URL with more than a host and a path.
func ParseIssuer(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", kind.Newf(kind.Invalid, "parse issuer", "", "%q is not a valid http or https URL of an issuer", s)
	}
	return strings.TrimRight(s, "/"), nil
}
