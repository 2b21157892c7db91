package core

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/millrace/millrace/events/sandbox"
)

// SetReach changes what a sandbox may reach; who may reach it stays. Its host
// puts it in force as soon as it reads it. NotFound unless it runs or is paused.
func (c *Core) SetReach(ctx context.Context, p Principal, id sandbox.ID, n sandbox.Network) error {
	if _, err := c.find(ctx, p, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	_, err := c.view.ChangeSandbox(ctx, id, func(s sandbox.State) ([]sandbox.Body, error) {
		if !s.Live() && !s.Standing() {
			return nil, noSandbox(id)
		}
		n.Private, n.MaskHost, n.HTTPSPorts = s.Network.Private, s.Network.MaskHost, s.Network.HTTPSPorts
		return []sandbox.Body{sandbox.NetworkSet{Network: n}}, nil
	})
	return logError("set network", string(id), err)
}

// Network is the network of a sandbox for whoever visits its ports; false if the
// view does not know it.
func (c *Core) Network(id sandbox.ID) (sandbox.Network, bool) {
	st, ok := c.view.Sandbox(id)
	return st.Network, ok
}

// Sealer hides what records must not show.
func (c *Core) Sealer() *sandbox.Sealer { return c.cfg.Sealer }

// TrafficToken opens the ports of a sandbox that was made without public
// traffic. It is made as Token is, and good for nothing else.
func (c *Core) TrafficToken(id sandbox.ID) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte("traffic")) //nolint:errcheck // a hash never fails
	mac.Write([]byte(id))        //nolint:errcheck // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}
