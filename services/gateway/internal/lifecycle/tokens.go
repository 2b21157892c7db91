package lifecycle

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Token returns the sandbox's access token, which grants access to its data plane.
// It is derived from the id and the cluster secret, so that every gateway can
// compute it and none stores it.
func (l *Lifecycle) Token(id sandbox.ID) string {
	mac := hmac.New(sha256.New, l.core.Secret)
	mac.Write([]byte("envd"))
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil))
}

// IngressClient returns the principal of a request without an access token where none is
// required: the sandbox's id, which cannot be guessed, is enough, plus the traffic token
// if the sandbox was created without public traffic. It returns Denied if that token is
// wrong, and NotFound if the log does not contain the sandbox.
func (l *Lifecycle) IngressClient(ctx context.Context, id sandbox.ID, traffic string) (core.Principal, error) {
	st, ok := l.core.View.Sandbox(id)
	if !ok {
		if err := l.core.Sync(ctx); err != nil {
			return core.Principal{}, err
		}
		if st, ok = l.core.View.Sandbox(id); !ok {
			return core.Principal{}, core.NoSandbox(id)
		}
	}
	if st.Network.Private && !hmac.Equal([]byte(traffic), []byte(l.TrafficToken(id))) {
		return core.Principal{}, kind.New(kind.Denied, "visit", string(id), "wrong traffic token")
	}
	return core.Principal{Tenant: st.Tenant, Sandbox: id}, nil
}

// Bearer returns the principal of a request with a sandbox's token. As with E2B, a
// sandbox created without secure needs no token: its id, which cannot be guessed, is
// enough. It returns Unauthenticated for a wrong token and NotFound for an unknown
// sandbox. A wrong token of an ended sandbox is also NotFound: clients must be able to
// find out that a sandbox has ended whatever token they send.
func (l *Lifecycle) Bearer(ctx context.Context, id sandbox.ID, token string) (core.Principal, error) {
	right := hmac.Equal([]byte(token), []byte(l.Token(id)))
	st, ok := l.core.View.Sandbox(id)
	if !ok && right {
		if err := l.core.Sync(ctx); err != nil {
			return core.Principal{}, err
		}
		st, ok = l.core.View.Sandbox(id)
	}
	switch {
	case ok && (right || !st.Request.Secure):
		return core.Principal{Tenant: st.Tenant, Sandbox: id}, nil
	case !ok || st.Over():
		return core.Principal{}, core.NoSandbox(id)
	}
	return core.Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "wrong access token")
}

// Signer returns the running sandbox for whose token by returns true: a signature need
// not name its sandbox. It costs two hashes per sandbox, and it holds no lock of the
// view meanwhile, since unauthenticated requests reach it.
func (l *Lifecycle) Signer(by func(token string) bool) (sandbox.ID, bool) {
	var all []sandbox.ID
	l.core.View.Sandboxes(func(s *sandbox.State) bool {
		if !s.Over() {
			all = append(all, s.ID)
		}
		return false
	})
	for _, id := range all {
		if by(l.Token(id)) {
			return id, true
		}
	}
	return "", false
}
