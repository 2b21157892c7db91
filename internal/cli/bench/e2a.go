package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/cli/e2aclient"
)

// e2aBench has the scenarios of e2a's API.
type e2aBench struct {
	*bench
	api  *e2aclient.Client
	name string // of its bundle
}

// byE2ABench returns what runs one of them.
func byE2ABench(run func(*e2aBench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error {
		name := "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		return run(&e2aBench{b, e2aclient.New(b.c), name}, ctx)
	}
}

// session creates a session, which done ends.
func (b *e2aBench) session(ctx context.Context, bundles ...string) (s e2aclient.Session, done func(), err error) {
	if s, err = b.api.Create(ctx, bundles...); err != nil {
		return s, nil, err
	}
	return s, func() {
		if err := b.c.RemoveSandbox(context.WithoutCancel(ctx), strings.TrimPrefix(s.Sandbox, "sbx_")); err != nil {
			b.Notef("end session: %v", err)
		}
	}, nil
}

// connected creates a session and connects to it.
func (b *e2aBench) connected(ctx context.Context, bundles ...string) (c *e2aclient.Conn, done func(), err error) {
	s, end, err := b.session(ctx, bundles...)
	if err != nil {
		return nil, nil, err
	}
	if c, err = b.api.Dial(ctx, &s); err != nil {
		end()
		return nil, nil, err
	}
	return c, func() { c.Close(); end() }, nil
}

// creates measures the creation of sandboxes, and of sessions, whose runtime accepts messages then.
func (b *e2aBench) creates(ctx context.Context) error {
	var boxes, sessions []time.Duration
	for range b.f.creates {
		begun := time.Now()
		var box struct {
			ID string `json:"vm_id"`
		}
		if err := b.api.Do(ctx, "POST", "/v1/sandboxes", map[string]any{"template": "standard"}, &box); err != nil {
			return err
		}
		boxes = append(boxes, time.Since(begun))
		if err := b.api.Do(ctx, "DELETE", "/v1/sandboxes/"+box.ID, nil, nil); err != nil {
			return err
		}
		begun = time.Now()
		_, end, err := b.session(ctx)
		if err != nil {
			return err
		}
		sessions = append(sessions, time.Since(begun))
		end()
	}
	b.spread("sandbox", boxes)
	b.spread("session", sessions)
	return nil
}

// connects measures upgrades, and the time from an upgrade to the first message.
func (b *e2aBench) connects(ctx context.Context) error {
	s, end, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer end()
	limited, cancel := b.limit(ctx)
	defer cancel()
	var upgrades, first []time.Duration
	for n := 0; n < b.f.count+warmUp && limited.Err() == nil && b.f.paused(limited); n++ {
		begun := time.Now()
		c, err := b.api.Dial(ctx, &s)
		if err != nil {
			return err
		}
		open := time.Now()
		if err = c.Send("x"); err == nil {
			_, err = c.Read()
		}
		took := time.Since(open)
		c.Close()
		if err != nil {
			return err
		}
		if n >= warmUp {
			upgrades, first = append(upgrades, open.Sub(begun)), append(first, took)
		}
	}
	b.spread("upgrade", upgrades)
	b.spread("first message", first)
	return nil
}

// echo measures messages that the runtime returns.
func (b *e2aBench) echo(ctx context.Context) error {
	c, done, err := b.connected(ctx)
	if err != nil {
		return err
	}
	defer done()
	limited, cancel := b.limit(ctx)
	defer cancel()
	before, known := b.server.usage()
	var all []time.Duration
	for n := 0; n < b.f.count+warmUp && limited.Err() == nil && b.f.paused(limited); n++ {
		text := "message " + strconv.Itoa(n)
		begun := time.Now()
		if err := c.Send(text); err != nil {
			return err
		}
		if err := awaitText(c, text); err != nil {
			return err
		}
		if n >= warmUp {
			all = append(all, time.Since(begun))
		}
	}
	b.costs(before, known, len(all))
	b.spread("echo", all)
	return nil
}

// awaitText reads up to a message that contains text.
func awaitText(c *e2aclient.Conn, text string) error {
	for {
		got, err := c.Read()
		if err != nil {
			return err
		}
		if strings.Contains(got, text) {
			return nil
		}
	}
}

// requests measures the smallest request with a key.
func (b *e2aBench) requests(ctx context.Context) error {
	limited, cancel := b.limit(ctx)
	defer cancel()
	before, known := b.server.usage()
	var all []time.Duration
	for n := 0; n < b.f.count+warmUp && limited.Err() == nil; n++ {
		begun := time.Now()
		if err := b.api.Do(ctx, "GET", "/v1/tenants/me/secrets", nil, nil); err != nil {
			return err
		}
		if n >= warmUp {
			all = append(all, time.Since(begun))
		}
	}
	b.costs(before, known, len(all))
	b.spread("request", all)
	return nil
}

// rotateTimeout ends the wait for a message that does not come.
const rotateTimeout = time.Minute

// rotate measures the rotation of a bundle of many connected sessions: until the response, and until
// the last client has its message.
func (b *e2aBench) rotate(ctx context.Context) error {
	bundle := map[string]any{"name": b.name, "values": map[string]string{"LLM_API_KEY": "0"}}
	if err := b.api.Do(ctx, "POST", "/v1/tenants/me/secrets", bundle, nil); err != nil {
		return err
	}
	path := "/v1/tenants/me/secrets/" + b.name
	defer b.api.Do(context.WithoutCancel(ctx), "DELETE", path, nil, nil) //nolint:errcheck // the last values are made up
	var open []*e2aclient.Conn
	for range b.f.creates {
		c, done, err := b.connected(ctx, b.name)
		if err != nil {
			return fmt.Errorf("after %d sessions: %w", len(open), err)
		}
		defer done()
		open = append(open, c)
	}
	waiting, stop := context.WithTimeout(ctx, rotateTimeout)
	defer stop()
	defer context.AfterFunc(waiting, func() { // a read has no context
		for _, c := range open {
			c.Close()
		}
	})()
	limited, cancel := b.limit(waiting)
	defer cancel()
	var answered, told []time.Duration
	for n := 1; n <= b.f.count && limited.Err() == nil; n++ {
		begun := time.Now()
		var g errgroup.Group
		for _, c := range open {
			g.Go(func() error { return awaitText(c, `"config_update"`) })
		}
		if err := b.api.Do(ctx, "PUT", path, map[string]any{"values": map[string]string{"LLM_API_KEY": strconv.Itoa(n)}}, nil); err != nil {
			return err
		}
		answered = append(answered, time.Since(begun))
		if err := g.Wait(); err != nil {
			return err
		}
		told = append(told, time.Since(begun))
	}
	b.add("sessions", float64(len(open)), "")
	b.spread("response", answered)
	b.spread("last message", told)
	return nil
}

// idle measures the memory of idle connections: their sessions exist before.
func (b *e2aBench) idle(ctx context.Context) error {
	var sessions []e2aclient.Session
	for range b.f.creates {
		s, end, err := b.session(ctx)
		if err != nil {
			return fmt.Errorf("after %d sessions: %w", len(sessions), err)
		}
		defer end()
		sessions = append(sessions, s)
	}
	before, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server's process is unknown: set --pid")
	}
	for i := range sessions {
		c, err := b.api.Dial(ctx, &sessions[i])
		if err != nil {
			return err
		}
		defer c.Close()
	}
	after, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server exited")
	}
	b.add("connections", float64(len(sessions)), "")
	b.add("server memory a connection", (after.rss-before.rss)*1024/float64(len(sessions)), "KiB")
	return nil
}
