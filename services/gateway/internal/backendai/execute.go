package backendai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/interpreter"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

const (
	// pollWait is how long a request waits for a run's next status.
	pollWait = 2 * time.Second
	// runTimeout limits a request that may start a kernel.
	runTimeout = 2 * time.Minute
	maxRunID   = 64
)

// execution is a request to run code, or about a run.
type execution struct {
	Mode    string                     `json:"mode"`
	Code    *string                    `json:"code"`
	RunID   *string                    `json:"runId"`
	Options map[string]json.RawMessage `json:"options"`
}

// decodeExecution decodes and checks a request.
func decodeExecution(raw []byte) (execution, error) {
	var e execution
	if json.Unmarshal(raw, &e) != nil {
		return e, badParams("the body must have a mode, and code, runId and options of the right types")
	}
	if e.RunID != nil && (len(*e.RunID) > maxRunID || strings.ContainsFunc(*e.RunID, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		return e, badParams("runId: must have at most 64 bytes, without spaces and control characters")
	}
	return e, nil
}

func badParams(msg string) error {
	return kind.Coded(kind.Invalid, "execute", "", session.BadParams, msg)
}

func (e *execution) code() string {
	if e.Code == nil {
		return ""
	}
	return *e.Code
}

// run returns what the request wants to run.
func (e *execution) run() (interpreter.Run, error) {
	if e.Mode == "query" {
		return interpreter.Run{Code: e.code()}, nil
	}
	var b interpreter.Batch
	for name, to := range map[string]*string{"clean": &b.Clean, "build": &b.Build, "exec": &b.Exec} {
		if raw, ok := e.Options[name]; ok && json.Unmarshal(raw, to) != nil {
			return interpreter.Run{}, badParams("options." + name + ": must be a string")
		}
	}
	return interpreter.Run{Batch: &b}, nil
}

// execute runs code, or continues a run, and responds with its next result.
func (h *Handler) execute(c *fiber.Ctx) error {
	raw, err := record.Body(c)
	if err != nil {
		return err
	}
	e, err := decodeExecution(raw)
	if err != nil {
		return err
	}
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.UserContext(), runTimeout)
	defer cancel()
	var f *following
	switch e.Mode {
	case "query", "batch":
		f, err = h.begin(ctx, p, &st, &e)
	case "continue", "input":
		f, err = h.resume(ctx, p, st.ID, &e)
	case "complete":
		return completer{h}.answer(ctx, c, p, &st, raw)
	default:
		return badParams("mode: must be query, batch, continue, input or complete")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return h.respond(ctx, c, p, f, *e.RunID)
}

// following is a run from the position at which its next result begins.
type following struct {
	*run.Follower
	id process.ID
	at place
}

// follow reads a run from its stored position.
func (h *Handler) follow(ctx context.Context, p core.Principal, id process.ID) (*following, error) {
	at, err := h.position(ctx, id)
	if err != nil {
		return nil, err
	}
	src, err := h.cfg.Operations.Read(ctx, p, id, at.now.After)
	if err != nil {
		return nil, err
	}
	return &following{run.Follow(src, at.now), id, at}, nil
}

// begin starts a run, or finds the run that a repeated request started.
func (h *Handler) begin(ctx context.Context, p core.Principal, st *sandbox.State, e *execution) (*following, error) {
	if e.RunID == nil || *e.RunID == "" {
		made := newRunID()
		e.RunID = &made
		id, src, err := h.start(ctx, p, st, e, procs.StartOptions{})
		if err != nil {
			return nil, err
		}
		return &following{run.Follow(src, run.Position{}), id, place{}}, nil
	}
	id, src, err := h.start(ctx, p, st, e, procs.StartOptions{IdempotencyKey: tagPrefix + *e.RunID})
	if err != nil {
		return nil, err
	}
	src.Close() // its turn goes on
	return h.follow(ctx, p, id)
}

func newRunID() string { return strings.ToLower(rand.Text()) }

// start starts the process of a run when its turn has come, which ends when the run has a
// place. The caller reads or closes the source.
func (h *Handler) start(ctx context.Context, p core.Principal, st *sandbox.State, e *execution, opt procs.StartOptions) (id process.ID, src *queued, err error) {
	wanted, err := e.run()
	if err != nil {
		return "", nil, err
	}
	end, err := h.turns.take(ctx, st.ID)
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	spec, err := h.cfg.Runs.Spec(ctx, p, st.ID, session.Language(st), wanted)
	if err != nil {
		return "", nil, err
	}
	tag := tagPrefix + *e.RunID
	spec.Tag = &tag
	id, started, err := h.cfg.Operations.Start(ctx, p, st.ID, spec, opt)
	if err != nil {
		return "", nil, err
	}
	return id, &queued{started, end, h.cfg.Slog}, nil
}

// resume finds a run and sends it the input of the request.
func (h *Handler) resume(ctx context.Context, p core.Principal, id sandbox.ID, e *execution) (*following, error) {
	if e.RunID == nil || *e.RunID == "" {
		return nil, badParams("runId is required")
	}
	found, err := h.runs(ctx, p, id, func(s *process.Summary) bool { return *s.Spec.Tag == tagPrefix+*e.RunID })
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, kind.Coded(kind.NotFound, "find run", "", session.NotFound, "No such run.")
	}
	proc := found[len(found)-1].ID
	if e.Mode == "input" {
		if err := h.input(ctx, p, proc, e.code()); err != nil {
			return nil, err
		}
	}
	return h.follow(ctx, p, proc)
}

// input sends a line to a run. A run that has ended needs none.
func (h *Handler) input(ctx context.Context, p core.Principal, id process.ID, line string) error {
	if !strings.HasSuffix(line, "\n") {
		line += "\n"
	}
	err := h.cfg.Operations.SendInput(ctx, p, id, []byte(line), false)
	if kind.Is(err, kind.NotFound) || kind.Is(err, kind.Conflict) {
		return nil
	}
	return err
}

// respond responds with the next result of a run.
func (h *Handler) respond(ctx context.Context, c *fiber.Ctx, p core.Principal, f *following, runID string) error {
	r, err := f.Next(ctx, pollWait)
	if err != nil {
		return err
	}
	r.RunID = runID
	raw, err := json.Marshal(fiber.Map{"result": r})
	if err != nil {
		return err
	}
	delivered, err := h.deliver(ctx, f.id, f.at, f.Position())
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return h.cfg.Streams.Answer(c, raw, h.cfg.Streams.Budget(p.Tenant), delivered)
}
