package backendai

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// found returns the session that the path names, which is alive.
func (h *Handler) found(c *fiber.Ctx) (core.Principal, sandbox.State, error) {
	p := auth.From(c)
	st, err := h.find(c.UserContext(), p, strings.Clone(c.Params("id")))
	if err == nil {
		h.touch(c.UserContext(), p, &st)
	}
	return p, st, err
}

// find returns the session with a name or a UUID. The result is not older than the call: another
// gateway may have created or ended it.
func (h *Handler) find(ctx context.Context, p core.Principal, name string) (sandbox.State, error) {
	if err := h.cfg.Operations.Sync(ctx); err != nil {
		return sandbox.State{}, err
	}
	if id, ok := session.ParseUUID(name); ok {
		st, err := h.cfg.Operations.FindSandbox(ctx, p, id)
		switch {
		case kind.Is(err, kind.NotFound), err == nil && (st.Over() || session.Name(&st) == ""):
			return st, session.Missing()
		case err != nil:
			return st, err
		}
		h.names(p).Apply(&st)
		return st, nil
	}
	if st, _, ok := h.named(p, name); ok {
		return st, nil
	}
	return sandbox.State{}, session.Missing()
}

// names returns the names of the tenant's sessions that were renamed.
func (h *Handler) names(p core.Principal) session.Names {
	return session.NamesOf(h.cfg.Operations.Sandboxes(p, func(s *sandbox.State) bool { return s.Request.Names() != "" }))
}

// named returns the session with a name that has not ended, and the last sandbox that had the name
// or gave it to another one.
func (h *Handler) named(p core.Principal, name string) (st sandbox.State, last sandbox.ID, ok bool) {
	all := h.cfg.Operations.Sandboxes(p, func(s *sandbox.State) bool {
		return name != "" && (s.Request.Names() != "" || !s.Over() && session.Name(s) != "" || session.Name(s) == name)
	})
	names := session.NamesOf(all)
	for _, s := range all {
		if last == "" && session.Name(&s) == name {
			last = s.ID
		}
		names.Apply(&s)
		if !s.Over() && session.Name(&s) == name {
			st, ok = s, true
		}
	}
	return st, last, ok
}

// touch keeps a session from ending for being idle. The deadline moves by at least a tenth of the
// idle time, so that few events are stored.
func (h *Handler) touch(ctx context.Context, p core.Principal, st *sandbox.State) {
	idle := st.Request.Lifetime
	deadline := time.Now().Add(idle)
	if idle <= 0 || st.Deadline.IsZero() || deadline.Sub(st.Deadline) < idle/10 {
		return
	}
	now, err := h.cfg.Operations.SetDeadline(ctx, p, st.ID, deadline, true)
	switch {
	case err == nil:
		*st = now
	case !kind.Is(err, kind.NotFound) && !kind.Is(err, kind.Conflict) && ctx.Err() == nil:
		h.cfg.Slog.Warn("extend session failed", "sandbox", st.ID, "err", err)
	}
}

// create creates a session, or returns the one with its name.
func (h *Handler) create(c *fiber.Ctx) error {
	raw, err := record.Body(c)
	if err != nil {
		return err
	}
	w, err := session.Decode(raw)
	if err != nil {
		return err
	}
	if err := h.checkOwner(c, "create session", "owner_access_key", w.Owner); err != nil {
		return err
	}
	w.Owner = cmp.Or(w.Owner, accessKeyOf(c))
	st, created, err := h.ensure(c.UserContext(), auth.From(c), &w)
	if err != nil {
		return err
	}
	if created {
		h.keeper.adopt(st.ID)
	}
	status := http.StatusCreated
	if !created && atLeast(c, Version) {
		status = http.StatusOK
	}
	return c.Status(status).JSON(session.Describe(&st, created))
}

// checkOwner returns Denied unless a parameter is empty or an access key of the request's tenant.
func (h *Handler) checkOwner(c *fiber.Ctx, op, name, key string) error {
	if pair, ok := h.cfg.Pairs.Pair(key); key != "" && (!ok || pair.Tenant != auth.From(c).Tenant) {
		return kind.New(kind.Denied, op, "", name+": must be an access key of your own")
	}
	return nil
}

const (
	// maxEnded is how often a session may end while a request waits for it.
	maxEnded = 3
	// createTimeout limits the time for which a request waits for a session.
	createTimeout = 2 * time.Minute
)

// ensure returns the session that a request wants, and whether the request created it.
func (h *Handler) ensure(ctx context.Context, p core.Principal, w *session.Wanted) (st sandbox.State, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	for range maxEnded {
		if err := h.cfg.Operations.Sync(ctx); err != nil {
			return st, false, err
		}
		live, last, ok := h.named(p, w.Name)
		if ok {
			return h.reused(&live, w)
		}
		st, created, err = h.attempt(ctx, p, w, last)
		if err != nil || created || !st.Over() {
			break
		}
	}
	if err == nil && !created {
		return h.reused(&st, w)
	}
	return st, created, err
}

// reused returns a session that exists, if the request accepts it.
func (h *Handler) reused(st *sandbox.State, w *session.Wanted) (sandbox.State, bool, error) {
	if !w.Reuse {
		return *st, false, kind.Coded(kind.Conflict, "create session", "", session.Exists, "The session already exists.")
	}
	return *st, false, nil
}

// attempt creates the sandbox that follows last in a session's name. Another request may create
// the same one.
func (h *Handler) attempt(ctx context.Context, p core.Principal, w *session.Wanted, last sandbox.ID) (sandbox.State, bool, error) {
	req, err := h.requested(ctx, p, w)
	if err != nil {
		return sandbox.State{}, false, err
	}
	token := rand.Text() // tells this request from others for the name
	req.RequestHash = []byte(token)
	st, err := h.await(ctx, p, h.next(p, w.Name, last), req, w)
	return st, string(st.Request.RequestHash) == token, err
}

// next returns the id of the sandbox that follows last in a session's name.
func (h *Handler) next(p core.Principal, name string, last sandbox.ID) sandbox.ID {
	return sandbox.KeyedID(h.cfg.Operations.DeriveKey(strings.Join([]string{"session", p.Tenant, name, string(last)}, "\x00")))
}

// await creates a sandbox and waits for it as long as the request wants.
func (h *Handler) await(ctx context.Context, p core.Principal, id sandbox.ID, req sandbox.Requested, w *session.Wanted) (sandbox.State, error) {
	if w.Enqueue {
		return h.cfg.Creator.Enqueue(ctx, p, id, req)
	}
	if w.MaxWait == 0 {
		return h.cfg.Creator.Ensure(ctx, p, id, req)
	}
	within, cancel := context.WithTimeout(ctx, w.MaxWait)
	defer cancel()
	st, err := h.cfg.Creator.Ensure(within, p, id, req)
	if err != nil && within.Err() != nil && ctx.Err() == nil { // it is still being created
		return h.cfg.Operations.FindSandbox(ctx, p, id)
	}
	return st, err
}

// requested returns the request for the sandbox of a session: of the template with the image's
// name, with that name without registry and tag, or of the code interpreter if the image is for a
// language.
func (h *Handler) requested(ctx context.Context, p core.Principal, w *session.Wanted) (sandbox.Requested, error) {
	idle := min(w.Idle, h.cfg.MaxTimeout)
	if idle == 0 {
		idle = min(defaultIdle, h.cfg.MaxTimeout)
	}
	names := []string{w.Image, session.Base(w.Image)}
	if session.LanguageOf(w.Image) != session.LanguageOf("") {
		names = append(names, "code-interpreter", "base")
	}
	for _, name := range names {
		req, err := h.cfg.Creator.Session(ctx, p, name, w, idle)
		if err == nil || !kind.Is(err, kind.NotFound) && !(kind.Is(err, kind.Invalid) && name == w.Image && name != names[1]) {
			return req, err
		}
	}
	return sandbox.Requested{}, kind.Coded(kind.NotFound, "create session", "", session.ImageNotFound, "No such environment image.")
}

// info responds with the description of a session.
func (h *Handler) info(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	runs, err := h.runs(ctx, p, st.ID, func(*process.Summary) bool { return true })
	if err != nil {
		return err
	}
	env, err := h.cfg.Operations.OwnEnv(&st)
	if err != nil {
		return err
	}
	return c.JSON(session.InfoOf(&st, env, time.Now(), len(runs), h.usage(ctx, p, st.ID).cpu))
}

// destroy ends a session and responds with what it used.
func (h *Handler) destroy(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	used := h.usage(ctx, p, st.ID)
	if err := h.cfg.Operations.DestroySandbox(ctx, p, st.ID); kind.Is(err, kind.NotFound) {
		return session.Missing()
	} else if err != nil {
		return err
	}
	stats := used.stats(&st)
	if atLeast(c, Version) {
		stats["status"] = "terminated" // older clients expect numbers only
	}
	return c.JSON(fiber.Map{"stats": stats})
}

// tagPrefix begins the tags of the processes that are runs; the id of the run follows.
const tagPrefix = "run:"

// runs returns the runs of a session for which keep returns true, oldest first.
func (h *Handler) runs(ctx context.Context, p core.Principal, id sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	return h.cfg.Operations.Processes(ctx, p, id, func(s *process.Summary) bool { return isRun(s) && keep(s) })
}

// isRun reports whether a process is a run.
func isRun(s *process.Summary) bool {
	return s.Spec.Tag != nil && strings.HasPrefix(*s.Spec.Tag, tagPrefix)
}

const (
	sigInterrupt = 2
	sigKill      = 9
)

// interrupt interrupts the code that runs: the oldest run that has not ended.
func (h *Handler) interrupt(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	active, err := h.cfg.Operations.ActiveProcesses(ctx, p, st.ID, isRun)
	if err == nil && len(active) > 0 {
		err = h.cfg.Operations.Signal(ctx, p, active[0].ID, sigInterrupt)
	}
	if err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// restart ends all processes of a session, and waits for their ends: a run that any gateway serves
// next must not find the old kernel. The files stay.
func (h *Handler) restart(c *fiber.Ctx) error {
	p, st, err := h.found(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	killed, err := h.endProcesses(ctx, p, st.ID)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		left, err := h.cfg.Operations.ActiveProcesses(ctx, p, st.ID, func(s *process.Summary) bool { return killed[s.ID] })
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return c.SendStatus(http.StatusNoContent)
		}
		if !waiting.Sleep(ctx, waiting.Delay(try, 5*time.Millisecond, 200*time.Millisecond)) {
			return kind.New(kind.Unavailable, "restart session", string(st.ID), "its processes have not ended")
		}
	}
}

// endProcesses kills all processes of a session and returns them.
func (h *Handler) endProcesses(ctx context.Context, p core.Principal, id sandbox.ID) (killed map[process.ID]bool, err error) {
	active, err := h.cfg.Operations.ActiveProcesses(ctx, p, id, func(*process.Summary) bool { return true })
	if err != nil {
		return nil, err
	}
	killed = make(map[process.ID]bool, len(active))
	for i := range active {
		if err := h.cfg.Operations.Signal(ctx, p, active[i].ID, sigKill); err != nil && !kind.Is(err, kind.NotFound) {
			return nil, err
		}
		killed[active[i].ID] = true
	}
	return killed, nil
}
