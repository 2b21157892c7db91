package e2b

import (
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// networkBody is SandboxNetworkConfig, and what a change of it may carry.
type networkBody struct {
	AllowOut            []string        `json:"allowOut"`
	DenyOut             []string        `json:"denyOut"`
	AllowPublicTraffic  *bool           `json:"allowPublicTraffic"`
	MaskRequestHost     string          `json:"maskRequestHost"`
	AllowInternetAccess *bool           `json:"allow_internet_access"`
	EgressProxy         json.RawMessage `json:"egressProxy"`
	Rules               json.RawMessage `json:"rules"`
	HTTPSPorts          []int           `json:"httpsPorts"`
}

// network is what the body asks for; internet is the default of what no rule
// names.
func (b *networkBody) network(internet bool) (sandbox.Network, error) {
	what := ""
	switch {
	case given(b.EgressProxy):
		what = "egressProxy"
	case given(b.Rules):
		what = "rules"
	case len(b.HTTPSPorts) > 0:
		what = "httpsPorts"
	}
	if what != "" {
		return sandbox.Network{}, kind.Newf(kind.Unimplemented, "network", "", "network.%s is not implemented here", what)
	}
	n := sandbox.Network{
		Internet: internet, Allow: b.AllowOut, Deny: b.DenyOut,
		Private: b.AllowPublicTraffic != nil && !*b.AllowPublicTraffic, MaskHost: b.MaskRequestHost,
	}
	return n, n.Check()
}

// setNetwork changes what a sandbox may reach: what is left out is cleared. Who
// may reach it stays as it was made.
func (h *Handler) setNetwork(c *fiber.Ctx) error {
	var body networkBody
	if err := decode(c, &body, true); err != nil {
		return err
	}
	n, err := body.network(body.AllowInternetAccess == nil || *body.AllowInternetAccess)
	if err != nil {
		return err
	}
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return err
	}
	if err := h.core.SetReach(c.UserContext(), auth.From(c), id, n); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// networkOf tells a sandbox's network as it is; nil if it is what every sandbox
// has.
func networkOf(st *sandbox.State) any {
	n := &st.Network
	if len(n.Allow) == 0 && len(n.Deny) == 0 && !n.Private && n.MaskHost == "" {
		return nil
	}
	return fiber.Map{
		"allowOut": orEmpty(n.Allow), "denyOut": orEmpty(n.Deny),
		"allowPublicTraffic": !n.Private, "maskRequestHost": n.MaskHost,
	}
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// trafficToken is what visitors of the sandbox's ports must show; nil: nothing.
func (h *Handler) trafficToken(st *sandbox.State) *string {
	if !st.Network.Private {
		return nil
	}
	t := h.core.TrafficToken(st.ID)
	return &t
}
