package lifecycle

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// SetNetwork replaces a sandbox's egress rules; its ingress rules stay. The host applies them
// as soon as it reads the record. It returns NotFound unless the sandbox runs or is paused.
func (l *Lifecycle) SetNetwork(ctx context.Context, p core.Principal, id sandbox.ID, n sandbox.Network) error {
	if _, err := l.FindSandbox(ctx, p, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.core.CallTimeout)
	defer cancel()
	_, err := l.core.View.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		if !s.IsRunning() && !s.InPause() {
			return nil, core.NoSandbox(id)
		}
		n.Private, n.MaskHost, n.HTTPSPorts = s.Network.Private, s.Network.MaskHost, s.Network.HTTPSPorts
		return []sandbox.Body{sandbox.NetworkSet{Network: n}}, nil
	})
	return core.LogError("set network", string(id), err)
}

// Network returns a sandbox's network for ingress clients, and false if the view does not
// have the sandbox.
func (l *Lifecycle) Network(id sandbox.ID) (sandbox.Network, bool) {
	st, ok := l.core.View.Sandbox(id)
	return st.Network, ok
}

// TrafficToken returns the token that grants access to the ports of a sandbox without
// public traffic. It is derived as Token is and grants nothing else.
func (l *Lifecycle) TrafficToken(id sandbox.ID) string {
	mac := hmac.New(sha256.New, l.core.Secret)
	mac.Write([]byte("traffic"))
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil))
}
