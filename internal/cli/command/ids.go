package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/output"
)

// IDKind is a kind of resource whose ids may be given as a unique prefix.
type IDKind struct {
	noun  string
	list  func(ctx context.Context, c *client.Client, prefix string) ([]candidate, error) // a list may ignore prefix
	named bool                                                                            // user-chosen names, which cannot be abbreviated
}

// candidate is a resource that a prefix may refer to.
type candidate struct{ id, about string }

// ProcessIDs is the kind of all processes.
func ProcessIDs() IDKind {
	return IDKind{noun: "process", list: func(ctx context.Context, c *client.Client, prefix string) ([]candidate, error) {
		all, _, err := c.Processes(ctx, client.ProcessQuery{Prefix: prefix}, false)
		return candidates(all, func(p *client.Process) candidate { return candidate{p.ID, p.Status() + ": " + p.CommandLine()} }), err
	}}
}

// SandboxIDs is the kind of sandboxes that have not ended.
func SandboxIDs() IDKind { return sandboxesIn(client.LiveStates) }

// EverySandbox is the kind of all sandboxes, including ended ones.
func EverySandbox() IDKind { return sandboxesIn("") }

func sandboxesIn(states string) IDKind {
	return IDKind{noun: "sandbox", list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Sandboxes(ctx, states, nil)
		return candidates(all, func(s *client.Sandbox) candidate { return candidate{s.ID, s.State + ", " + s.TemplateName()} }), err
	}}
}

// SnapshotIDs is the kind of all snapshots.
func SnapshotIDs() IDKind {
	return IDKind{noun: "snapshot", list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Snapshots(ctx)
		return candidates(all, func(s *client.Snapshot) candidate { return candidate{s.ID, strings.Join(s.Names, ", ")} }), err
	}}
}

// TemplateIDs is the kind of all templates.
func TemplateIDs() IDKind {
	return IDKind{noun: "template", list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Templates(ctx)
		return candidates(all, func(t *client.Template) candidate { return candidate{t.ID, t.Name + ":" + t.Tag} }), err
	}}
}

// KeyIDs is the kind of all API keys.
func KeyIDs() IDKind {
	return IDKind{noun: "key", list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Keys(ctx)
		return candidates(all, func(k *client.Key) candidate { return candidate{k.ID, k.Name} }), err
	}}
}

// ShareIDs is the kind of all valid links.
func ShareIDs() IDKind {
	return IDKind{noun: "link", list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Shares(ctx)
		return candidates(all, func(s *client.Share) candidate { return candidate{s.ID, s.Process + s.Sandbox} }), err
	}}
}

// HostNames is the kind of all hosts.
func HostNames() IDKind {
	return IDKind{noun: "host", named: true, list: func(ctx context.Context, c *client.Client, _ string) ([]candidate, error) {
		all, err := c.Hosts(ctx)
		return candidates(all, func(h *client.Host) candidate { return candidate{h.Name, h.Status()} }), err
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

// ByID calls f with the id as given and, if it does not exist, with the one id that starts
// with it. It reads the list only in the second case.
func ByID(ctx context.Context, c *client.Client, k IDKind, given string, f func(id string) error) error {
	err := f(given)
	var notFound *client.Error
	if k.named || !errors.As(err, &notFound) || notFound.Status != http.StatusNotFound {
		return err
	}
	all, lerr := k.list(ctx, c, given)
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
	return &AmbiguousError{k.noun, given, found}
}

// AmbiguousError reports a prefix of several ids.
type AmbiguousError struct {
	noun, given string
	found       []candidate
}

// Error lists the first candidates.
func (e *AmbiguousError) Error() string {
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

// Each runs f for every argument, an id of kind k, and prints an error for each that fails.
func (a *Env) Each(k IDKind, f func(context.Context, *client.Client, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.Client()
		if err != nil {
			return err
		}
		failed := false
		for _, arg := range args {
			if err := ByID(cmd.Context(), c, k, arg, func(id string) error { return f(cmd.Context(), c, id) }); err != nil {
				a.Notef("%s: %v", arg, err)
				failed = true
			}
		}
		if failed {
			return &output.ExitError{Code: 1}
		}
		return nil
	}
}

// completionTimeout bounds the requests for one completion: the user waits at a prompt.
const completionTimeout = 2 * time.Second

// completeFlag returns the completion for a flag whose value is an id.
func (a *Env) completeFlag(k IDKind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := a.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		all, err := k.list(ctx, c, typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, one := range all {
			if strings.HasPrefix(one.id, typed) {
				out = append(out, cobra.CompletionWithDesc(one.id, output.Printable(one.about)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteArgs returns the completion for ids as the first most arguments; 0: all of them.
func (a *Env) CompleteArgs(k IDKind, most int) cobra.CompletionFunc {
	complete := a.completeFlag(k)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// FlagIs sets the completion of a flag whose value is an id.
func (a *Env) FlagIs(c *cobra.Command, flag string, k IDKind) {
	c.RegisterFlagCompletionFunc(flag, a.completeFlag(k)) //nolint:errcheck // the flag exists
}
