package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/keystore"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Keyring serves the keys of the store to operators: their numbers and ids, never a key.
type Keyring struct{ core *core.Core }

// NewKeyring returns the surface.
func NewKeyring(c *core.Core) *Keyring { return &Keyring{c} }

// Register adds the routes, which only operators may use.
func (k *Keyring) Register(r fiber.Router, operators fiber.Handler) {
	r.Get("/v1/keyring", operators, k.get)
	r.Post("/v1/keyring/master", operators, k.rotateMaster)
	r.Post("/v1/keyring/data", operators, k.rotateData)
}

// keyring is the state of the keys in a response.
type keyring struct {
	Master   string       `json:"master_key"` // id of the master key that seals the data keys
	DataKeys []dataKey    `json:"data_keys"`  // oldest first
	Resealed uint64       `json:"resealed"`   // values that were sealed again with the current data key
	Left     uint64       `json:"left"`       // values that are still to be sealed again
	Sealed   bool         `json:"sealed"`     // all values that can be sealed again are
	Services []keyService `json:"services"`   // running services that use the keys
	Changes  []keyChange  `json:"changes"`    // oldest first
}

type dataKey struct {
	Number  uint32     `json:"number"`
	State   string     `json:"state"`                // current, or replaced
	Stream  string     `json:"used_by,omitempty"`    // stream with a value that needs a replaced key, at the last search
	Stored  *time.Time `json:"used_since,omitempty"` // when that value was stored
	Checked *time.Time `json:"checked_at,omitempty"` // time of the last search
}

type keyService struct {
	Name    string   `json:"name"`
	Masters []string `json:"master_keys"` // ids, the current one first
	OK      bool     `json:"ok"`          // it can open the current data key
	Problem string   `json:"problem,omitempty"`
}

type keyChange struct {
	Time   time.Time `json:"time"`
	Type   string    `json:"type"` // created, master_key, data_key_made or data_key_removed
	Data   uint32    `json:"data_key,omitempty"`
	Master string    `json:"master_key"`
	By     string    `json:"by,omitempty"`
}

// get responds with the state of the keys, of a rotation, and of the services that use the keys.
func (k *Keyring) get(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(c.UserContext(), k.core.CallTimeout)
	defer cancel()
	state, err := k.core.Log.State(ctx)
	if err != nil {
		return core.LogError("read keys", "", err)
	}
	return k.respond(ctx, c, &state)
}

// rotation is the body of a request to rotate a key.
type rotation struct {
	Replaces uint32 `json:"replaces"` // number of the current data key
	Force    bool   `json:"force"`    // also if a running service could not follow
}

func (k *Keyring) rotateMaster(c *fiber.Ctx) error {
	return k.rotate(c, func(ctx context.Context, r *rotation, by string) (keystore.State, error) {
		return k.core.Log.RotateMaster(ctx, by, r.Force)
	})
}

func (k *Keyring) rotateData(c *fiber.Ctx) error {
	return k.rotate(c, func(ctx context.Context, r *rotation, by string) (keystore.State, error) {
		if r.Replaces == 0 {
			return keystore.State{}, kind.New(kind.Invalid, "rotate data key", "", "replaces is required: the number of the current data key")
		}
		return k.core.Log.RotateData(ctx, by, r.Replaces, r.Force)
	})
}

// rotate decodes a request, makes the change and responds with the new state.
func (k *Keyring) rotate(c *fiber.Ctx, change func(ctx context.Context, r *rotation, by string) (keystore.State, error)) error {
	var r rotation
	if body := c.Request().Body(); len(body) > 0 {
		if err := json.Unmarshal(body, &r); err != nil {
			return kind.New(kind.Invalid, "rotate keys", "", "the body must be a JSON object with replaces and force")
		}
	}
	by := "key " + catalog.KeyOf(auth.From(c).Tenant, auth.Shown(c), time.Time{}).ID
	ctx, cancel := context.WithTimeout(c.UserContext(), k.core.CallTimeout)
	defer cancel()
	state, err := change(ctx, &r, by)
	if err != nil {
		return core.LogError("rotate keys", "", err)
	}
	k.core.Slog.Info("keys rotated", "by", by, "master_key", state.Master, "data_key", state.Current)
	return k.respond(ctx, c, &state)
}

func (k *Keyring) respond(ctx context.Context, c *fiber.Ctx, s *keystore.State) error {
	use, _, err := k.core.Log.LastUse(ctx)
	if err != nil {
		return core.LogError("read keys", "", err)
	}
	reports, err := k.core.Log.Reports(ctx)
	if err != nil {
		return core.LogError("read keys", "", err)
	}
	out := keyring{Master: s.Master, DataKeys: []dataKey{}, Services: []keyService{}, Changes: []keyChange{}}
	for _, n := range s.Old {
		out.DataKeys = append(out.DataKeys, replaced(n, &use))
	}
	out.DataKeys = append(out.DataKeys, dataKey{Number: s.Current, State: "current"})
	out.Sealed = len(s.Old) == 0
	if use.Current == s.Current {
		out.Resealed, out.Left, out.Sealed = use.Resealed, use.Left, use.Left == 0
	}
	for _, r := range reports {
		if r.Masters == nil {
			r.Masters = []string{}
		}
		out.Services = append(out.Services, keyService{Name: r.Service, Masters: r.Masters, OK: r.Data >= s.Current, Problem: r.Problem})
	}
	names := map[keystore.ChangeKind]string{keystore.Created: "created", keystore.MasterKey: "master_key", keystore.DataKeyMade: "data_key_made", keystore.DataKeyGone: "data_key_removed"}
	for _, x := range s.Changes {
		out.Changes = append(out.Changes, keyChange{x.Time.UTC(), names[x.Kind], x.Data, x.Master, x.By})
	}
	return c.JSON(out)
}

// replaced returns a replaced data key, with the result of the last search for its values.
func replaced(number uint32, use *keystore.Use) dataKey {
	out := dataKey{Number: number, State: "replaced"}
	for _, x := range use.Kept {
		if x.Data != number {
			continue
		}
		at := use.Time.UTC()
		if out.Stream = x.Stream; !x.Stored.IsZero() {
			stored := x.Stored.UTC()
			out.Stored, out.Checked = &stored, &at
		}
	}
	return out
}
