package shares

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/share"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// page is the part of the URL of the console that shows a link. A browser does not send the fragment.
const page = "/#/s/"

// Register adds the routes. The principal must be set before.
func (s *Shares) Register(r fiber.Router) {
	r.Get("/v1/shares", s.list)
	r.Post("/v1/shares", s.create)
	r.Get("/v1/shares/self", s.self)
	r.Delete("/v1/shares/:id", s.remove)
}

// shown is a link as JSON. Only the response to its creation has a token.
type shown struct {
	ID      string      `json:"id,omitempty"`
	Token   string      `json:"token,omitempty"`
	URL     string      `json:"url,omitempty"`
	Process process.ID  `json:"process,omitempty"`
	Sandbox sandbox.ID  `json:"sandbox,omitempty"`
	Seq     process.Seq `json:"seq,omitempty"`
	Created *time.Time  `json:"created,omitempty"`
	Expires time.Time   `json:"expires"`
}

func show(x *share.Share) shown {
	created := x.Created.UTC()
	out := shown{ID: string(x.ID), Process: x.Process, Seq: x.Seq, Created: &created, Expires: x.Expires.UTC()}
	if x.Process == "" {
		out.Sandbox = x.Sandbox
	}
	return out
}

// create makes a link for {"process"} or {"sandbox"}, with {"seq"} up to that event of the process only.
// {"expires"} is a duration, such as 24h.
func (s *Shares) create(c *fiber.Ctx) error {
	var req struct {
		Process string      `json:"process"`
		Sandbox string      `json:"sandbox"`
		Seq     json.Number `json:"seq"`
		Expires string      `json:"expires"`
	}
	if err := record.Read(c, &req); err != nil {
		return err
	}
	to, err := target(req.Process, req.Sandbox)
	if err == nil && req.Seq != "" {
		to.Seq, err = record.ParseSeq(req.Seq.String())
	}
	if err != nil {
		return err
	}
	var age time.Duration
	if req.Expires != "" {
		if age, err = time.ParseDuration(req.Expires); err != nil || age <= 0 {
			return kind.Newf(kind.Invalid, "make share", "", "expires %.32q must be a duration above 0, such as 24h", req.Expires)
		}
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	x, token, err := s.Create(ctx, auth.From(c), to, age)
	if err != nil {
		return err
	}
	out := show(&x)
	out.Token, out.URL = token, page+token
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Status(fiber.StatusCreated).JSON(out)
}

// target parses what a link is for.
func target(proc, sbx string) (to share.Target, err error) {
	switch {
	case (proc == "") == (sbx == ""):
		return to, kind.New(kind.Invalid, "make share", "", "process or sandbox is required, and not both")
	case proc != "":
		to.Process, err = process.ParseID(strings.Clone(proc))
		return to, err
	}
	to.Sandbox, err = sandbox.ParseID(strings.Clone(sbx))
	return to, err
}

// list responds with the valid links of the tenant, without their tokens.
func (s *Shares) list(c *fiber.Ctx) error {
	ctx, cancel := record.Context(c)
	defer cancel()
	all, err := s.List(ctx, auth.From(c))
	if err != nil {
		return err
	}
	out := make([]shown, len(all))
	for i := range all {
		out[i] = show(&all[i])
	}
	return c.JSON(out)
}

// self responds with what the token of the request permits.
func (s *Shares) self(c *fiber.Ctx) error {
	token := c.Get(auth.HeaderShare)
	if token == "" {
		return kind.Newf(kind.Invalid, "find share", "", "the header %s is required", auth.HeaderShare)
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	x, err := s.find(ctx, token)
	if err != nil {
		return err
	}
	out := show(&x)
	out.ID, out.Created = "", nil
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(out)
}

// remove revokes a link.
func (s *Shares) remove(c *fiber.Ctx) error {
	id, err := share.ParseID(c.Params("id"))
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := s.Revoke(ctx, auth.From(c), id); err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}
