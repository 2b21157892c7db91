package sandbox

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
)

// Identity says which tokens a sandbox's requests may carry, and who vouches for it.
type Identity struct {
	Issuer string  // a URL, to which all who check tokens come for the keys
	Tokens []Token // none: it has no identity
}

// Token is made anew for each request that names it.
type Token struct {
	Name     string
	Audience string // who is to believe it
	Type     string // TokenJWT
}

// TokenJWT is the one type of token that there is, in E2B's words: a JSON web token
// whose subject is a SPIFFE id.
const TokenJWT = "JWT-SVID"

// The most that there may be; E2B documents the number of tokens.
const (
	maxTokens    = 5
	maxTokenName = 128
	maxAudience  = 1024
)

// Check says what is wrong with an identity that came from outside; its errors are
// Invalid.
func (i *Identity) Check() error {
	if len(i.Tokens) > maxTokens {
		return badToken("%d tokens, the most is %d", len(i.Tokens), maxTokens)
	}
	for _, t := range i.Tokens {
		switch {
		case t.Name == "" || len(t.Name) > maxTokenName || strings.ContainsAny(t.Name, "{}") || strings.ContainsFunc(t.Name, unicode.IsControl):
			return badToken("the name %.128q: it has 1 to %d bytes, no braces and no control characters", t.Name, maxTokenName)
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

// Token finds a token by its name.
func (i *Identity) Token(name string) (Token, bool) {
	for _, t := range i.Tokens {
		if t.Name == name {
			return t, true
		}
	}
	return Token{}, false
}

// ParseIssuer checks the URL of who vouches for sandboxes, and gives it without a
// slash at its end. Invalid for what is none, or has more than a path behind the host.
func ParseIssuer(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", kind.Newf(kind.Invalid, "parse issuer", "", "%q is no http or https URL of an issuer", s)
	}
	return strings.TrimRight(s, "/"), nil
}
