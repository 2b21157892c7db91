package teams

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// keyBody is E2B's TeamAPIKey, or with the key CreatedTeamAPIKey: the key is returned only once.
type keyBody struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Key       string    `json:"key,omitempty"`
	AccessKey string    `json:"accessKey,omitempty"` // of a key pair
	SecretKey string    `json:"secretKey,omitempty"` // of a key pair
	Mask      keyMask   `json:"mask"`
	CreatedAt time.Time `json:"createdAt"`
	CreatedBy *struct{} `json:"createdBy"` // unknown
	LastUsed  *struct{} `json:"lastUsed"`  // unknown
}

// keyMask is E2B's IdentifierMaskingDetails: the beginning of a key.
type keyMask struct {
	Prefix      string `json:"prefix"`
	ValueLength int    `json:"valueLength"` // 0: unknown
	ValuePrefix string `json:"maskedValuePrefix"`
	ValueSuffix string `json:"maskedValueSuffix"`
}

const (
	keyPrefix  = "e2b_"
	maxKeyName = 255
)

func keyOf(k *catalog.Key, secret string) keyBody {
	b := keyBody{ID: k.ID, Name: k.Name, CreatedAt: k.Issued.UTC(), AccessKey: k.Access}
	if k.Access != "" {
		b.SecretKey, b.Mask = secret, keyMask{ValuePrefix: k.Access, ValueLength: len(k.Access)}
		return b
	}
	b.Key = secret
	if rest, ok := strings.CutPrefix(k.Hint, keyPrefix); ok {
		b.Mask = keyMask{Prefix: keyPrefix, ValuePrefix: rest}
	} else {
		b.Mask = keyMask{ValuePrefix: k.Hint}
	}
	b.Mask.ValueLength = max(0, len(secret)-len(b.Mask.Prefix))
	return b
}

// ListKeys serves GET /api-keys: the valid keys.
func (h *Handler) ListKeys(c *fiber.Ctx) error {
	all, err := h.accounts.Keys(c.UserContext(), auth.From(c))
	if err != nil {
		return err
	}
	out := make([]keyBody, len(all))
	for i := range all {
		out[i] = keyOf(&all[i], "")
	}
	return c.JSON(out)
}

// CreateKey serves POST /api-keys.
func (h *Handler) CreateKey(c *fiber.Ctx) error {
	var body struct {
		Name string `json:"name"`
		Pair bool   `json:"pair"` // create a key pair, which E2B does not have
	}
	if err := wire.Decode(c, &body, false); err != nil {
		return err
	}
	if utf8.RuneCountInString(body.Name) > maxKeyName {
		return wire.Invalid("name is longer than %d characters", maxKeyName)
	}
	issue := h.accounts.IssueKey
	if body.Pair {
		issue = h.accounts.IssueKeyPair
	}
	secret, k, err := issue(c.UserContext(), auth.From(c), body.Name)
	if err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(keyOf(&k, secret))
}

// RevokeKey serves DELETE /api-keys/:id.
func (h *Handler) RevokeKey(c *fiber.Ctx) error {
	id, err := wire.PathName(c)
	if err == nil {
		err = h.accounts.RevokeKey(c.UserContext(), auth.From(c), id, strings.Clone(auth.Shown(c)))
	}
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
