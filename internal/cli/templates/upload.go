package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
	"github.com/millrace/millrace/internal/part"
	"github.com/millrace/millrace/internal/waiting"
)

// upload sends those parts of a template that the gateway lacks.
type upload struct {
	// the first failed part cancels it
	ctx     context.Context
	c       *client.Client
	g       *errgroup.Group
	packers sync.Pool    // of *part.Packer
	sent    atomic.Int64 // bytes
}

const (
	uploadWorkers  = 3
	uploadAttempts = 6
)

func tag(ctx context.Context, c *client.Client, name string, manifest []byte, out *client.Template) error {
	return retry(ctx, func() error {
		_, err := c.Call(ctx, &client.Request{Method: "PUT", Path: client.TemplatePath(name), Body: manifest}, out)
		return err
	})
}

// templateTimeout is how long an import waits for a host to fetch the template.
const templateTimeout = 3 * time.Minute

// awaitTemplate waits until a host has fetched a template. Hosts do that by themselves.
func awaitTemplate(ctx context.Context, c *client.Client, name string, info *client.Template) error {
	ctx, cancel := context.WithTimeout(ctx, templateTimeout)
	defer cancel()
	for {
		_, err := c.Call(ctx, &client.Request{Method: "GET", Path: client.TemplatePath(name)}, info)
		if err == nil && len(info.Hosts) > 0 {
			return nil
		}
		if !waiting.Sleep(ctx, time.Second/2) {
			return cmp.Or(err, fmt.Errorf("after %v", templateTimeout))
		}
	}
}

func newUpload(ctx context.Context, c *client.Client) *upload {
	u := &upload{c: c}
	u.g, u.ctx = errgroup.WithContext(ctx)
	u.g.SetLimit(uploadWorkers)
	return u
}

// part sends a part in the background while the next one is packed.
func (u *upload) part(ctx context.Context, sum template.Sum, data []byte) error {
	u.g.Go(func() error { return retry(u.ctx, func() error { return u.send(u.ctx, sum, data) }) })
	return ctx.Err()
}

func (u *upload) wait() error { return u.g.Wait() }

func (u *upload) send(ctx context.Context, sum template.Sum, data []byte) error {
	path := "/v1/store/templates/parts/" + string(sum)
	_, err := u.c.Call(ctx, &client.Request{Method: "HEAD", Path: path}, nil)
	var e *client.Error
	if !errors.As(err, &e) || e.Status != http.StatusNotFound {
		return err // nil: the gateway has it
	}
	p, ok := u.packers.Get().(*part.Packer)
	if !ok {
		if p, err = part.New(); err != nil {
			return err
		}
	}
	packed := p.Pack(data)
	u.packers.Put(p)
	if _, err = u.c.Call(ctx, &client.Request{Method: "PUT", Path: path, Body: packed}, nil); err == nil {
		u.sent.Add(int64(len(packed)))
	}
	return err
}

// retry calls f up to uploadAttempts times, over some seconds, while its error may be temporary.
func retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || !client.Retryable(err) || try == uploadAttempts || !waiting.Sleep(ctx, time.Duration(try)*500*time.Millisecond) {
			return err
		}
	}
}

// progress prints the progress of a task: on a terminal in one line that is overwritten,
// otherwise as a new line every few seconds.
type progress struct {
	a        *app
	terminal bool
	last     time.Time
	what     string
	open     bool // the terminal's current line has no end yet
}

const (
	terminalInterval = 100 * time.Millisecond
	lineInterval     = 5 * time.Second
)

func (a *app) progress() *progress {
	return &progress{a: a, terminal: a.Paint(a.Err, command.Bold, "") != ""}
}

// say prints the start of a step.
func (p *progress) say(what string) {
	p.end()
	p.what, p.last = what, time.Now()
	p.a.Notef("%s", output.Printable(what))
}

// bytes prints n of of bytes done; of is 0 if the total is unknown.
func (p *progress) bytes(what string, n, of int64) {
	every := lineInterval
	if p.terminal {
		every = terminalInterval
	}
	now := time.Now()
	if what == p.what && now.Sub(p.last) < every {
		return
	}
	p.what, p.last = what, now
	text := what + " " + output.Bytes(n)
	if of > 0 {
		text += " of " + output.Bytes(of)
	}
	if !p.terminal {
		p.a.Notef("%s", text)
		return
	}
	fmt.Fprintf(p.a.Err, "\r\x1b[Kmillrace: %s", text)
	p.open = true
}

// end ends the terminal's current line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.a.Err)
		p.open = false
	}
}
