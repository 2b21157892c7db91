package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Messages of a 401 are envd's, which clients compare.
const (
	msgMismatch = "access token present in header but does not match"
	msgMissing  = "missing signature query parameter"
	msgInvalid  = "invalid signature"
	msgExpired  = "signature is already expired"
)

// byFile authenticates a request for a file: with the sandbox's token, or with a URL signed
// with it, which need not name the sandbox.
func byFile(c *fiber.Ctx, tokens Tokens) (core.Principal, error) {
	t := route.Of(c)
	if t.Named != "" && t.Sandbox == "" { // no valid id
		return core.Principal{}, nil
	}
	id, named, token := t.Sandbox, t.Named != "", c.Get("X-Access-Token")
	if !named && token != "" {
		id, named = tokens.Signer(func(t string) bool { return hmac.Equal([]byte(t), []byte(token)) })
		if !named {
			return core.Principal{}, unauthenticated(msgMismatch)
		}
	}
	if named && (token != "" || c.Query("signature") == "") {
		p, err := tokens.Bearer(c.UserContext(), id, token)
		switch {
		case kind.Is(err, kind.NotFound):
			return core.Principal{}, nil
		case !kind.Is(err, kind.Unauthenticated):
			return p, err
		case token != "":
			return p, unauthenticated(msgMismatch)
		}
	}
	s, err := signatureOf(c)
	if err != nil {
		return core.Principal{}, err
	}
	if !named {
		if id, named = tokens.Signer(s.madeWith); !named {
			return core.Principal{}, unauthenticated(msgInvalid)
		}
	}
	if !s.madeWith(tokens.Token(id)) {
		p, err := tokens.Bearer(c.UserContext(), id, "")
		switch {
		case err == nil: // the sandbox requires no token
			return p, nil
		case kind.Is(err, kind.NotFound):
			return core.Principal{}, nil
		}
		return core.Principal{}, unauthenticated(msgInvalid)
	}
	if s.expired(time.Now()) {
		return core.Principal{}, unauthenticated(msgExpired)
	}
	p, err := tokens.Bearer(c.UserContext(), id, tokens.Token(id))
	if kind.Is(err, kind.NotFound) {
		return core.Principal{}, nil
	}
	return p, err
}

func unauthenticated(msg string) error {
	return kind.New(kind.Unauthenticated, "authenticate", "", msg)
}

// signature is the signature of a URL, and the text that it covers.
type signature struct {
	proof   string
	text    hash.Cloner // hash of the text up to the token, which may be long
	expires string      // expiration, which follows the token
}

const (
	signaturePrefix = "v1_"
	opRead          = "read"
	opWrite         = "write"
	maxExpires      = 20 // maximum digits of a time
)

func signatureOf(c *fiber.Ctx) (signature, error) {
	s := signature{proof: strings.Clone(c.Query("signature"))}
	if s.proof == "" {
		return s, unauthenticated(msgMissing)
	}
	op := opRead
	if c.Method() == http.MethodPost {
		op = opWrite
	}
	s.expires = strings.Clone(c.Query("signature_expiration"))
	if len(s.expires) > maxExpires {
		return s, unauthenticated(msgInvalid)
	}
	s.text = sha256.New().(hash.Cloner) //nolint:errcheck,forcetypeassert // sha256 implements it
	fmt.Fprintf(s.text, "%s:%s:%s:", c.Query("path"), op, c.Query("username"))
	return s, nil
}

// madeWith reports whether the signature was made with token.
func (s *signature) madeWith(token string) bool {
	h, err := s.text.Clone()
	if err != nil {
		return false
	}
	if s.expires != "" {
		token += ":" + s.expires
	}
	io.WriteString(h, token) //nolint:errcheck // a hash never fails
	return hmac.Equal([]byte(s.proof), []byte(signaturePrefix+base64.RawStdEncoding.EncodeToString(h.Sum(nil))))
}

func (s *signature) expired(now time.Time) bool {
	if s.expires == "" {
		return false
	}
	at, err := strconv.ParseInt(s.expires, 10, 64)
	return err != nil || now.Unix() > at
}

// Signer finds the sandbox with whose token a URL was signed.
type Signer interface {
	Token(id sandbox.ID) string
	// Signer returns the sandbox for whose token by returns true.
	Signer(by func(token string) bool) (sandbox.ID, bool)
}
