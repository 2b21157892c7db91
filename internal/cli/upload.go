package cli

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
	"github.com/millrace/millrace/internal/part"
)

// upload sends those parts of a template that the gateway lacks.
type upload struct {
	//nolint:containedctx // the first failed part cancels it
	ctx     context.Context
	c       *client
	g       *errgroup.Group
	packers sync.Pool    // of *part.Packer
	sent    atomic.Int64 // bytes
}

const (
	uploadWorkers  = 3
	uploadAttempts = 6
)

func (c *client) templates(ctx context.Context) ([]templateInfo, error) {
	var out struct {
		Templates []templateInfo `json:"templates"`
	}
	_, err := c.call(ctx, &request{method: "GET", path: "/v1/templates"}, &out)
	return out.Templates, err
}

func (c *client) tag(ctx context.Context, name string, manifest []byte, out *templateInfo) error {
	return retry(ctx, func() error {
		_, err := c.call(ctx, &request{method: "PUT", path: templatePath(name), body: manifest}, out)
		return err
	})
}

// templateTimeout is how long an import waits for a host to fetch the template.
const templateTimeout = 3 * time.Minute

// awaitTemplate waits until a host has fetched a template. Hosts do that by themselves.
func (c *client) awaitTemplate(ctx context.Context, name string, info *templateInfo) error {
	ctx, cancel := context.WithTimeout(ctx, templateTimeout)
	defer cancel()
	for {
		_, err := c.call(ctx, &request{method: "GET", path: templatePath(name)}, info)
		if err == nil && len(info.Hosts) > 0 {
			return nil
		}
		if !pause(ctx, time.Second/2) {
			return cmp.Or(err, fmt.Errorf("after %v", templateTimeout))
		}
	}
}

func (c *client) upload(ctx context.Context) *upload {
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
	path := "/v1/templates/parts/" + string(sum)
	_, err := u.c.call(ctx, &request{method: "HEAD", path: path}, nil)
	var e *apiError
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
	if _, err = u.c.call(ctx, &request{method: "PUT", path: path, body: packed}, nil); err == nil {
		u.sent.Add(int64(len(packed)))
	}
	return err
}

// retry calls f up to uploadAttempts times, over some seconds, while its error may be temporary.
func retry(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || !retryable(err) || try == uploadAttempts || !pause(ctx, time.Duration(try)*500*time.Millisecond) {
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

func (a *app) progress() *progress { return &progress{a: a, terminal: a.paint(a.Err, bold, "") != ""} }

// say prints the start of a step.
func (p *progress) say(what string) {
	p.end()
	p.what, p.last = what, time.Now()
	p.a.notef("%s", printable(what))
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
	text := what + " " + bytesOf(n)
	if of > 0 {
		text += " of " + bytesOf(of)
	}
	if !p.terminal {
		p.a.notef("%s", text)
		return
	}
	fmt.Fprintf(p.a.Err, "\r\x1b[Kmillrace: %s", text) //nolint:errcheck // there is nowhere else to report it
	p.open = true
}

// end ends the terminal's current line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.a.Err) //nolint:errcheck // there is nowhere else to report it
		p.open = false
	}
}
