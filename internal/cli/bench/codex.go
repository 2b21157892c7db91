package bench

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/codexclient"
	"github.com/millrace/millrace/internal/waiting"
)

// codexBench has the scenarios of codex's protocol.
type codexBench struct{ *bench }

// byCodexBench returns what runs one of them.
func byCodexBench(run func(codexBench, context.Context) error) func(*bench, context.Context) error {
	return func(b *bench, ctx context.Context) error { return run(codexBench{b}, ctx) }
}

// session opens a session in bench's sandbox.
func (b codexBench) session(ctx context.Context) (*codexclient.Conn, error) {
	c, err := codexclient.Dial(ctx, b.c.Base(), b.c.APIKey(), b.sbx)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(""); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// spawn starts an exec-server.
func (b codexBench) spawn(ctx context.Context) (*codexclient.Conn, error) {
	binary := b.binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return codexclient.Spawn(ctx, b.Err, binary, "--driver", b.f.driver)
}

// start measures the smallest command over WebSocket.
func (b codexBench) start(ctx context.Context) error {
	c, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	before, known := b.server.usage()
	n, err := b.trues(ctx, c)
	b.costs(before, known, n)
	return err
}

// stdio measures it over the standard input and output of an exec-server, and the time
// that the exec-server takes to be ready.
func (b codexBench) stdio(ctx context.Context) error {
	begun := time.Now()
	c, err := b.spawn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Begin(""); err != nil {
		return err
	}
	b.add("ready", millis(time.Since(begun)), "ms")
	_, err = b.trues(ctx, c)
	return err
}

// trues runs `true` repeatedly and returns how often.
func (b codexBench) trues(ctx context.Context, c *codexclient.Conn) (n int, err error) {
	limited, cancel := b.limit(ctx)
	defer cancel()
	var answered, exited, closed []time.Duration
	for ; n < b.f.count+warmUp && limited.Err() == nil && b.f.paused(limited); n++ {
		id := "true-" + strconv.Itoa(n)
		begun := time.Now()
		if err := c.Start(id, false, "/bin/true"); err != nil {
			return n, err
		}
		toAnswer := time.Since(begun)
		if _, err := c.Until(id, "process/exited"); err != nil {
			return n, err
		}
		toExit := time.Since(begun)
		if _, err := c.Until(id, "process/closed"); err != nil {
			return n, err
		}
		if n >= warmUp {
			answered, exited, closed = append(answered, toAnswer), append(exited, toExit), append(closed, time.Since(begun))
		}
	}
	b.spread("answer", answered)
	b.spread("exited", exited)
	b.spread("closed", closed)
	return n, nil
}

// echo measures key presses at a terminal in raw mode.
func (b codexBench) echo(ctx context.Context) error {
	c, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	const id = "echo"
	if err := c.Start(id, true, "/bin/sh", "-c", "stty raw -echo; printf R; exec cat"); err != nil {
		return err
	}
	output := func(e *codexclient.Event) bool { return e.Size > 0 } // what has no equivalent is an empty chunk
	if _, err := c.Await(output); err != nil {
		return err
	}
	limited, cancel := b.limit(ctx)
	defer cancel()
	before, known := b.server.usage()
	var all []time.Duration
	for i := 0; i < b.f.count && limited.Err() == nil && b.f.paused(limited); i++ {
		begun := time.Now()
		_, err := c.Send("process/write", map[string]string{
			"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte{'a' + byte(i%26)}), "writeId": strconv.Itoa(i + 1),
		})
		if err != nil {
			return err
		}
		if _, err := c.Await(output); err != nil {
			return err
		}
		all = append(all, time.Since(begun))
	}
	b.costs(before, known, len(all))
	b.spread("echo", all)
	_, err = c.Call("process/terminate", map[string]string{"processId": id})
	return err
}

// bulk measures one process that prints as fast as it is read.
func (b codexBench) bulk(ctx context.Context) error {
	c, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	b.server.resetPeak()
	before, known := b.server.usage()
	begun := time.Now()
	if err := c.Start("bulk", false, "/bin/sh", "-c", bulkScript(b.f.mib)); err != nil {
		return err
	}
	end, err := c.Until("bulk", "process/closed")
	took := time.Since(begun)
	if err != nil {
		return err
	}
	if want := b.f.mib << 20; end.Size != want {
		return fmt.Errorf("received %d bytes of %d", end.Size, want)
	}
	b.add("throughput", float64(end.Size)/1e6/took.Seconds(), "MB/s")
	if after, ok := b.server.usage(); ok && known {
		b.add("server CPU", (after.cpu - before.cpu).Seconds(), "s")
		b.add("server memory, more", after.peak-before.rss, "MiB")
	}
	return nil
}

// backlog measures how fast output arrives that was written while no client was attached.
func (b codexBench) backlog(ctx context.Context) error {
	c, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer func() { c.Close() }()
	session, mark := c.Session, "backlog-"+c.Session
	if err := c.Start("backlog", false, "/bin/sh", "-c", "sleep 0.5; : "+mark+"; "+bulkScript(b.f.mib)); err != nil {
		return err
	}
	c.Close()
	if err := b.ended(ctx, mark); err != nil {
		return err
	}
	if c, err = codexclient.Dial(ctx, b.c.Base(), b.c.APIKey(), b.sbx); err != nil {
		return err
	}
	begun := time.Now()
	if err := c.Begin(session); err != nil {
		return err
	}
	page, err := c.Call("process/read", recoveryOf("backlog"))
	if err != nil {
		return err
	}
	b.add("first page", millis(time.Since(begun)), "ms")
	size := page.Size
	if !page.Result.Closed {
		end, err := c.Until("backlog", "process/closed")
		if err != nil {
			return err
		}
		size += end.Size
	}
	if want := b.f.mib << 20; size != want {
		return fmt.Errorf("received %d bytes of %d", size, want)
	}
	b.add("throughput", float64(size)/1e6/time.Since(begun).Seconds(), "MB/s")
	return nil
}

// recoveryOf returns the parameters of a client's first read after it has resumed.
func recoveryOf(process string) map[string]any {
	return map[string]any{"processId": process, "afterSeq": 0, "maxBytes": nil, "waitMs": 0}
}

// ended waits until no process whose command contains a text runs.
func (b codexBench) ended(ctx context.Context, mark string) error {
	const pause = 50 * time.Millisecond
	for {
		running, _, err := b.c.Processes(ctx, client.ProcessQuery{Sandbox: b.sbx, States: "running"}, true)
		if err != nil {
			return err
		}
		found := false
		for i := range running {
			found = found || strings.Contains(strings.Join(running[i].Args, " "), mark)
		}
		if !found {
			return nil
		}
		if !waiting.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// outage measures how soon sessions go on after their connections were cut: from the
// connection to the answer that has the output of the time in between.
func (b codexBench) outage(ctx context.Context) error {
	const clients = 10
	var sessions []string
	for range clients {
		c, err := b.session(ctx)
		if err != nil {
			return err
		}
		err = c.Start("print", false, "/bin/sh", "-c", "while :; do echo line; sleep 0.1; done")
		c.Close()
		if err != nil {
			return err
		}
		sessions = append(sessions, c.Session)
	}
	if !waiting.Sleep(ctx, b.f.outage) {
		return ctx.Err()
	}
	var all []time.Duration
	for _, session := range sessions {
		took, err := b.comeBack(ctx, session)
		if err != nil {
			return err
		}
		all = append(all, took)
	}
	b.spread("back", all)
	return nil
}

// comeBack resumes a session, and ends its process.
func (b codexBench) comeBack(ctx context.Context, session string) (time.Duration, error) {
	begun := time.Now()
	c, err := codexclient.Dial(ctx, b.c.Base(), b.c.APIKey(), b.sbx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Begin(session); err != nil {
		return 0, err
	}
	page, err := c.Call("process/read", recoveryOf("print"))
	took := time.Since(begun)
	if err != nil {
		return 0, err
	}
	if page.Size == 0 {
		return 0, errors.New("the answer has no output")
	}
	_, err = c.Call("process/terminate", map[string]string{"processId": "print"})
	return took, err
}

// idle opens many idle sessions.
func (b codexBench) idle(ctx context.Context) error {
	before, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server's process is unknown: set --pid")
	}
	var open []*codexclient.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	begun := time.Now()
	for range b.f.sessions {
		c, err := b.session(ctx)
		if err != nil {
			return fmt.Errorf("after %d sessions: %w", len(open), err)
		}
		open = append(open, c)
	}
	took := time.Since(begun)
	after, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server exited")
	}
	b.add("sessions", float64(len(open)), "")
	b.add("to open one", millis(took)/float64(len(open)), "ms")
	b.add("server memory a session", (after.rss-before.rss)*1024/float64(len(open)), "KiB")
	b.add("server memory", after.rss, "MiB")
	return nil
}
