package sandboxes

import (
	"maps"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// iamBody is E2B's SandboxIam.
type iamBody struct {
	Tokens map[string]tokenBody `json:"tokens"`
}

// tokenBody is E2B's SandboxIamToken.
type tokenBody struct {
	Audience  string `json:"audience"`
	TokenType string `json:"tokenType"`
}

// identity returns the identity that the body requests; without tokens there is none, as at
// E2B. Its error is Precondition if the gateway has no issuer.
func (cr *creator) identity(c *fiber.Ctx, b *iamBody) (sandbox.Identity, error) {
	if len(b.Tokens) == 0 {
		return sandbox.Identity{}, nil
	}
	out := sandbox.Identity{Issuer: cr.issuer}
	for _, name := range slices.Sorted(maps.Keys(b.Tokens)) {
		out.Tokens = append(out.Tokens, sandbox.Token{Name: name, Audience: b.Tokens[name].Audience, Type: b.Tokens[name].TokenType})
	}
	if err := out.Check(); err != nil {
		return out, err
	}
	if out.Issuer == "" {
		return out, kind.New(kind.Precondition, "create sandbox", "", "iam: the gateway listens on all addresses and has no issuer URL: its operator must set --issuer")
	}
	return out, cr.keys.EnsureSigningKey(c.UserContext())
}
