package interpreter

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

const (
	tagPrefix = "context:"
	// defaultPrefix begins the ids of the default contexts, which run code without a
	// context id: one per language, created on first use and again after it has died.
	defaultPrefix = "default-"
)

func tagOf(id string) string { return tagPrefix + id }

// codeContext is a context in the API.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`

	process process.ID // process of its kernel
	address string     // where the kernel listens
	user    string     // user of the kernel and of its executions; empty: the sandbox's default user
}

// contextOf returns the context whose kernel is s.
func contextOf(s *process.Summary) (codeContext, bool) {
	if s.Spec.Tag == nil || len(s.Spec.Args) <= addressArg {
		return codeContext{}, false
	}
	id, ok := strings.CutPrefix(*s.Spec.Tag, tagPrefix)
	if !ok {
		return codeContext{}, false
	}
	return codeContext{
		ID: id, Language: s.Spec.Args[len(s.Spec.Args)-1], Cwd: cwdOf(s.Spec.Cwd, s.Spec.User), process: s.ID, address: s.Spec.Args[addressArg], user: s.Spec.User,
	}, true
}

// cwdOf returns a process's absolute working directory: relative paths and ~ are in the user's home.
func cwdOf(cwd, user string) string {
	if rest, ok := strings.CutPrefix(cwd, "~"); ok && (rest == "" || rest[0] == '/') {
		cwd = strings.TrimLeft(rest, "/")
	}
	if path.IsAbs(cwd) {
		return path.Clean(cwd)
	}
	return path.Join(homeOf(user), cwd)
}

// userOf returns the user that runs the kernel of a context in cwd: the sandbox's default
// user, except in the home of root, which no other user may enter.
func userOf(cwd string) string {
	cwd = cwdOf(cwd, "")
	if home := homeOf("root"); cwd == home || strings.HasPrefix(cwd, home+"/") {
		return "root"
	}
	return ""
}

func homeOf(user string) string {
	switch user {
	case "":
		return "/home/user"
	case "root":
		return "/root"
	}
	return "/home/" + user
}

// contexts returns the running contexts, oldest first, and the number of kernels each id has had.
func (h *Handler) contexts(ctx context.Context, p core.Principal, sbx sandbox.ID) ([]codeContext, map[string]int, error) {
	kernels := map[string]int{}
	// Another gateway may just have started a kernel: Processes includes it.
	all, err := h.core.Processes(ctx, p, sbx, func(*process.Summary) bool { return true })
	if err != nil {
		return nil, nil, err
	}
	var found []codeContext
	for i := range all {
		if c, ok := contextOf(&all[i]); ok {
			if kernels[c.ID]++; all[i].Active() {
				found = append(found, c)
			}
		}
	}
	return found, kernels, nil
}

// find returns a running context. If it does not exist, the error is NotFound with the text
// that SDKs match on.
func (h *Handler) find(ctx context.Context, p core.Principal, sbx sandbox.ID, id string) (codeContext, int, error) {
	all, kernels, err := h.contexts(ctx, p, sbx)
	if err != nil {
		return codeContext{}, 0, err
	}
	for _, c := range all {
		if c.ID == id {
			return c, kernels[id], nil
		}
	}
	return codeContext{}, kernels[id], kind.Newf(kind.NotFound, opContext, id, "Context %s not found", id)
}

// findDefault returns the default context of a language.
func (h *Handler) findDefault(ctx context.Context, p core.Principal, sbx sandbox.ID, language string) (codeContext, error) {
	c, kernels, err := h.find(ctx, p, sbx, defaultPrefix+language)
	if kind.Is(err, kind.NotFound) && !gone(err) {
		c = codeContext{ID: defaultPrefix + language, Language: language}
		return c, h.start(ctx, p, sbx, &c, kernels)
	}
	return c, err
}

// isDefault returns the language whose default context an id names.
func isDefault(id string) (string, bool) {
	language, ok := strings.CutPrefix(id, defaultPrefix)
	return language, ok && languages[language] == language
}

// withDefaults adds the contexts that every sandbox has at E2B from its start, and here
// from their first use.
func withDefaults(all []codeContext) []codeContext {
	out := make([]codeContext, 0, len(all)+2)
	for _, language := range [...]string{"python", "javascript"} {
		id := defaultPrefix + language
		if !slices.ContainsFunc(all, func(c codeContext) bool { return c.ID == id }) {
			out = append(out, codeContext{ID: id, Language: language, Cwd: homeOf("")})
		}
	}
	return append(out, all...)
}

// gone reports whether err is about a missing sandbox, not a missing context.
func gone(err error) bool { return !strings.HasPrefix(kind.Message(err), "Context ") }

// start starts a context's kernel, the nth of its id, and waits until it is ready.
// Concurrent starts of the same one start one process. It also returns the errors of
// await.
func (h *Handler) start(ctx context.Context, p core.Principal, sbx sandbox.ID, c *codeContext, n int) error {
	id, src, err := h.core.Start(ctx, p, sbx, kernelSpec(sbx, c.ID, c.Language, c.Cwd), procs.StartOptions{
		IdempotencyKey: fmt.Sprintf("context %s %d", c.ID, n),
	})
	if err != nil {
		return err
	}
	defer src.Close()
	c.process, c.address, c.Cwd, c.user = id, addressOf(sbx, c.ID), cwdOf(c.Cwd, ""), userOf(c.Cwd)
	return await(ctx, src, c.Language)
}

func newContextID() string { return strings.ToLower(rand.Text()) }

// end kills a context's kernel and waits until that is recorded.
func (h *Handler) end(ctx context.Context, p core.Principal, c *codeContext) error {
	const sigKill = 9
	if err := h.core.Signal(ctx, p, c.process, sigKill); err != nil && !kind.Is(err, kind.NotFound) {
		return err
	}
	src, err := h.core.Read(ctx, p, c.process, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	for {
		batch, err := src.Next(ctx, 0)
		if err != nil {
			return err
		}
		if _, over := batch[len(batch)-1].Body.(process.Finished); over {
			return nil
		}
	}
}
