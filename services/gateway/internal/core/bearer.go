package core

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Token is the sandbox's access token: whoever bears it may use that sandbox's
// data plane. It is a function of the id and the cluster's secret, so that every
// gateway knows it and none keeps it.
func (c *Core) Token(id sandbox.ID) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte("envd")) //nolint:errcheck // a hash never fails
	mac.Write([]byte(id))     //nolint:errcheck // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// Visitor gives who asks without a token where none is wanted: whoever knows the
// sandbox's id, which cannot be guessed, and shows its traffic token where it was made
// without public traffic; Denied if that is wrong. NotFound if the log does not know the
// sandbox: nobody is let in unseen.
func (c *Core) Visitor(ctx context.Context, id sandbox.ID, traffic string) (Principal, error) {
	st, ok := c.view.Sandbox(id)
	if !ok {
		if err := c.Sync(ctx); err != nil {
			return Principal{}, err
		}
		if st, ok = c.view.Sandbox(id); !ok {
			return Principal{}, noSandbox(id)
		}
	}
	if st.Network.Private && !hmac.Equal([]byte(traffic), []byte(c.TrafficToken(id))) {
		return Principal{}, kind.New(kind.Denied, "visit", string(id), "wrong traffic token")
	}
	return Principal{Tenant: st.Tenant, Sandbox: id}, nil
}

// Bearer gives who asks with a sandbox's token. A sandbox that was made without
// secure needs none: there its id, which cannot be guessed, is enough, as with
// E2B. Errors: Unauthenticated for a wrong token; NotFound where there is no such
// sandbox, or for a wrong token of one that is over: there is nobody to refuse it,
// and clients must learn of a sandbox's end however they ask (WIRE-E2B 3).
func (c *Core) Bearer(ctx context.Context, id sandbox.ID, token string) (Principal, error) {
	right := hmac.Equal([]byte(token), []byte(c.Token(id)))
	st, ok := c.view.Sandbox(id)
	if !ok && right {
		if err := c.Sync(ctx); err != nil {
			return Principal{}, err
		}
		st, ok = c.view.Sandbox(id)
	}
	switch {
	case ok && (right || !st.Request.Secure):
		return Principal{Tenant: st.Tenant, Sandbox: id}, nil
	case !ok || st.Over():
		return Principal{}, noSandbox(id)
	}
	return Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "wrong access token")
}

// Signer finds the running sandbox whose token by is true for: what was signed
// with it need not name it. It costs two hashes a sandbox, and holds up nobody: any
// stranger may ask.
func (c *Core) Signer(by func(token string) bool) (sandbox.ID, bool) {
	var all []sandbox.ID
	c.view.Sandboxes(func(s *sandbox.State) bool {
		if !s.Over() {
			all = append(all, s.ID)
		}
		return false
	})
	for _, id := range all {
		if by(c.Token(id)) {
			return id, true
		}
	}
	return "", false
}
