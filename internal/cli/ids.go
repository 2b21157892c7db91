package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// idKind is a kind of resource whose ids may be given as a unique prefix.
type idKind struct {
	noun  string
	list  func(context.Context, *client) ([]candidate, error)
	named bool // user-chosen names, which cannot be abbreviated
}

// candidate is a resource that a prefix may refer to.
type candidate struct{ id, about string }

func processIDs() idKind {
	return idKind{noun: "process", list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.processes(ctx, "")
		return candidates(all, func(p *processInfo) candidate { return candidate{p.ID, status(p) + ": " + line(p)} }), err
	}}
}

// sandboxIDs is the kind of sandboxes that have not ended.
func sandboxIDs() idKind { return sandboxesIn(liveStates) }

// everySandbox is the kind of all sandboxes, including ended ones.
func everySandbox() idKind { return sandboxesIn("") }

func sandboxesIn(states string) idKind {
	return idKind{noun: "sandbox", list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.sandboxes(ctx, states, nil)
		return candidates(all, func(s *sandboxInfo) candidate { return candidate{s.ID, s.State + ", " + s.template()} }), err
	}}
}

func snapshotIDs() idKind {
	return idKind{noun: "snapshot", list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.snapshots(ctx)
		return candidates(all, func(s *snapshotInfo) candidate { return candidate{s.ID, strings.Join(s.Names, ", ")} }), err
	}}
}

func templateIDs() idKind {
	return idKind{noun: "template", list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.templates(ctx)
		return candidates(all, func(t *templateInfo) candidate { return candidate{t.ID, t.Name + ":" + t.Tag} }), err
	}}
}

func keyIDs() idKind {
	return idKind{noun: "key", list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.keys(ctx)
		return candidates(all, func(k *keyInfo) candidate { return candidate{k.ID, k.Name} }), err
	}}
}

func hostNames() idKind {
	return idKind{noun: "host", named: true, list: func(ctx context.Context, c *client) ([]candidate, error) {
		all, err := c.hosts(ctx)
		return candidates(all, func(h *hostInfo) candidate { return candidate{h.Name, h.state()} }), err
	}}
}

func candidates[T any](all []T, of func(*T) candidate) []candidate {
	out := make([]candidate, 0, len(all))
	seen := make(map[string]bool)
	for i := range all {
		if one := of(&all[i]); !seen[one.id] {
			seen[one.id] = true
			out = append(out, one)
		}
	}
	return out
}

// byID calls f with the id as given and, if it does not exist, with the one id that starts
// with it. It reads the list only in the second case.
func (c *client) byID(ctx context.Context, k idKind, given string, f func(id string) error) error {
	err := f(given)
	var notFound *apiError
	if k.named || !errors.As(err, &notFound) || notFound.Status != http.StatusNotFound {
		return err
	}
	all, lerr := k.list(ctx, c)
	if lerr != nil {
		return err
	}
	var found []candidate
	for _, one := range all {
		switch {
		case one.id == given: // it exists: the error is about something else
			return err
		case strings.HasPrefix(one.id, given):
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
		return err
	case 1:
		return f(found[0].id)
	}
	return &ambiguousError{k.noun, given, found}
}

// ambiguousError reports a prefix of several ids.
type ambiguousError struct {
	noun, given string
	found       []candidate
}

// Error lists the first candidates.
func (e *ambiguousError) Error() string {
	const most = 10
	var b strings.Builder
	fmt.Fprintf(&b, "%s id %q is ambiguous; candidates:", e.noun, e.given)
	for _, one := range e.found[:min(len(e.found), most)] {
		fmt.Fprintf(&b, "\n  %s  %s", one.id, one.about)
	}
	if n := len(e.found) - most; n > 0 {
		fmt.Fprintf(&b, "\n  and %d more", n)
	}
	return b.String()
}

// completionTimeout bounds the requests for one completion: the user waits at a prompt.
const completionTimeout = 2 * time.Second

// completeFlag returns the completion for a flag whose value is an id.
func (a *app) completeFlag(k idKind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		all, err := k.list(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, one := range all {
			if strings.HasPrefix(one.id, typed) {
				out = append(out, cobra.CompletionWithDesc(one.id, printable(one.about)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeArgs returns the completion for ids as the first most arguments; 0: all of them.
func (a *app) completeArgs(k idKind, most int) cobra.CompletionFunc {
	complete := a.completeFlag(k)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// flagIs sets the completion of a flag whose value is an id.
func (a *app) flagIs(c *cobra.Command, flag string, k idKind) {
	c.RegisterFlagCompletionFunc(flag, a.completeFlag(k)) //nolint:errcheck // the flag exists
}
