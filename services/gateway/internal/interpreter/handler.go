package interpreter

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// gateway is the part of the operations that the surface uses, implemented by record.Gateway.
type gateway interface {
	Sync(ctx context.Context) error
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error)
}

// Handler serves /execute and /contexts. Its methods may be called concurrently.
type Handler struct {
	core    gateway
	streams *stream.Streams
}

// New returns the surface of g. It serves its streams with streams.
func New(g record.Gateway, streams *stream.Streams) *Handler {
	return &Handler{core: g, streams: streams}
}

// Register adds the routes. Authentication must run before them.
func (h *Handler) Register(r fiber.Router) {
	r.Post("/execute", withReason(h.execute))
	r.Post("/contexts", withReason(h.create))
	r.Get("/contexts", withReason(h.list))
	r.Delete("/contexts/:id", withReason(h.remove))
	r.Post("/contexts/:id/restart", withReason(h.restart))
}

// opContext is the operation of errors about a request's context.
const opContext = "find context"

// withReason puts the error of a request where SDKs show it: npm's shows the body of a 404,
// which is plain text as E2B's own server sends it, and of other responses only the reason
// phrase of the status line.
func withReason(do fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		err := do(c)
		if err != nil {
			c.Response().Header.SetStatusMessage([]byte(phrase(kind.Message(err))))
		}
		if k, ok := errors.AsType[*kind.Error](err); ok && k.Op == opContext {
			c.Status(httperr.Status(k.Kind)).Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
			return c.SendString(kind.Message(err))
		}
		return err
	}
}

// phrase makes a reason phrase of a message: one line of printable ASCII, at most 200
// bytes.
func phrase(message string) string {
	const most = 200
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(message), " "))
	return line[:min(len(line), most)]
}

// execution is the body of POST /execute.
type execution struct {
	Code      *string           `json:"code"`
	Language  string            `json:"language"`
	Context   string            `json:"context_id"`
	Variables map[string]string `json:"env_vars"`
	TimeoutMS *int64            `json:"timeout_ms"` // not in E2B's API: timeout before the kernel is interrupted; absent, 0: none
}

// execute runs code in a context and streams the results. A retry with the same
// Idempotency-Key streams the same execution.
func (h *Handler) execute(c *fiber.Ctx) error {
	var e execution
	if err := record.Read(c, &e); err != nil {
		return err
	}
	switch {
	case e.Code == nil:
		return invalid("code is required")
	case e.Language != "" && e.Context != "":
		return kind.New(kind.Invalid, opContext, "", "Only one of context_id or language can be provided")
	}
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return err
	}
	ctx, cancel := kernelContext(c)
	defer cancel()
	in, err := h.contextFor(ctx, p, sbx, &e)
	if err != nil {
		return err
	}
	spec, err := execSpec(&in, *e.Code, e.Variables)
	if err != nil {
		return err
	}
	if spec.Timeout, err = record.Timeout(e.TimeoutMS, 0); err != nil {
		return err
	}
	id, src, err := h.core.Start(ctx, p, sbx, spec, procs.StartOptions{IdempotencyKey: strings.Clone(c.Get("Idempotency-Key"))})
	if err != nil {
		return err
	}
	if spec.Stdin {
		if err := h.sendCode(ctx, p, id, *e.Code); err != nil {
			src.Close()
			if c.Get("Idempotency-Key") == "" { // no retry will send the rest
				_ = h.core.Signal(ctx, p, id, int32(syscall.SIGKILL))
			}
			return err
		}
	}
	head := stream.Head{ContentType: textenc.ContentTypeNDJSON, Headers: record.StreamHeaders(id, 0), Budget: h.streams.Budget(p.Tenant)}
	return h.streams.Serve(c, head, &clientSource{Source: src, h: h, principal: p, id: id}, newEncoder(head.Budget))
}

// sendCode sends an execution its code. If the execution has ended, it takes no input and
// its record has the reason.
func (h *Handler) sendCode(ctx context.Context, p core.Principal, id process.ID, code string) error {
	err := h.core.SendInputOnce(ctx, p, id, "code", []byte(code), true)
	if kind.Is(err, kind.NotFound) || kind.Is(err, kind.Precondition) {
		return nil
	}
	return err
}

// kernelTimeout limits a request that may start a kernel, up to its stream: on a busy host that
// takes a Java virtual machine longer than a call may take.
const kernelTimeout = 2 * time.Minute

func kernelContext(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.UserContext(), kernelTimeout)
}

func (h *Handler) contextFor(ctx context.Context, p core.Principal, sbx sandbox.ID, e *execution) (codeContext, error) {
	if language, ok := isDefault(e.Context); ok {
		return h.findDefault(ctx, p, sbx, language)
	}
	if e.Context != "" {
		in, _, err := h.find(ctx, p, sbx, e.Context)
		return in, err
	}
	language, err := parseLanguage(e.Language)
	if err != nil {
		return codeContext{}, err
	}
	return h.findDefault(ctx, p, sbx, language)
}

func (h *Handler) create(c *fiber.Ctx) error {
	var want struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if len(c.Request().Body()) > 0 {
		if err := record.Read(c, &want); err != nil {
			return err
		}
	}
	language, err := parseLanguage(want.Language)
	if err != nil {
		return err
	}
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return err
	}
	ctx, cancel := kernelContext(c)
	defer cancel()
	made := codeContext{ID: newContextID(), Language: language, Cwd: want.Cwd}
	if err := h.start(ctx, p, sbx, &made, 0); err != nil {
		return err
	}
	return c.JSON(made)
}

func (h *Handler) list(c *fiber.Ctx) error {
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	all, _, err := h.contexts(ctx, p, sbx)
	if err != nil {
		return err
	}
	return c.JSON(withDefaults(all))
}

func (h *Handler) remove(c *fiber.Ctx) error {
	_, _, err := h.endKernel(c)
	if err != nil {
		return err
	}
	return c.SendStatus(fiber.StatusNoContent)
}

// restart gives a context a new kernel, without the state of the previous one.
func (h *Handler) restart(c *fiber.Ctx) error {
	old, kernels, err := h.endKernel(c)
	if err != nil {
		return err
	}
	ctx, cancel := kernelContext(c)
	defer cancel()
	if err := h.start(ctx, auth.From(c), old.process.Sandbox(), &old, kernels); err != nil {
		return err
	}
	return c.JSON(nil)
}

// endKernel ends the kernel of the context in the path, and returns how many kernels the
// context has had.
func (h *Handler) endKernel(c *fiber.Ctx) (codeContext, int, error) {
	p := auth.From(c)
	sbx, err := h.sandbox(c, p)
	if err != nil {
		return codeContext{}, 0, err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	id := strings.Clone(c.Params("id"))
	if language, ok := isDefault(id); ok {
		if _, err := h.findDefault(ctx, p, sbx, language); err != nil {
			return codeContext{}, 0, err
		}
	}
	in, kernels, err := h.find(ctx, p, sbx, id)
	if err == nil {
		err = h.end(ctx, p, &in)
	}
	return in, kernels, err
}

// sandbox returns the sandbox that the request names, else the token's, else the only
// running one.
func (h *Handler) sandbox(c *fiber.Ctx, p core.Principal) (sandbox.ID, error) {
	return route.Choose(c, p.Sandbox, func() []sandbox.State { return h.core.Sandboxes(p, (*sandbox.State).IsRunning) })
}

func invalid(msg string) error { return kind.New(kind.Invalid, "execute", "", msg) }
