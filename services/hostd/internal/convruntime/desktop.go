package convruntime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

// shellTool is the tool that runs a command as a frame of type exec does.
const shellTool = "shell_exec"

// maxCalls is the number of calls that wait for the one before.
const maxCalls = 128

// desk calls the desktop's tools for clients, one after the other.
type desk struct {
	*desktop.Desktop
	out   *output
	calls chan call
	all   sync.WaitGroup
}

// runDesktop runs the desktop of a sandbox without a conversation until a signal ends it.
func runDesktop(environ []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	d := desktop.New(desktop.Config{Environ: environ, Log: func(err error) { fmt.Fprintf(stderr, "%s: %v\n", bootstrap.Arg, err) }})
	d.Start()
	defer d.Stop()
	if err := d.Wait(ctx); err != nil {
		fmt.Fprintln(stdout, err)
	} else {
		fmt.Fprintln(stdout, "ready")
	}
	<-ctx.Done()
	return 0
}

// call is a client's call of a tool.
type call struct {
	tool string
	id   json.RawMessage
	text []byte // the whole frame, which has the arguments
}

func newDesk(dir directory, environ []string, out *output, report func(error)) *desk {
	d := &desk{out: out, calls: make(chan call, maxCalls)}
	d.Desktop = desktop.New(desktop.Config{Environ: environ, Log: report, Setting: func(name string) string {
		values, err := dir.read(bootstrap.EnvFile)
		if err != nil {
			report(err)
		}
		for _, v := range withValues(environ, values) {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}})
	d.all.Go(func() {
		for c := range d.calls {
			d.answer(&c)
		}
	})
	return d
}

// close waits for the calls and ends the desktop.
func (d *desk) close() {
	close(d.calls)
	d.all.Wait()
	d.Stop()
}

// handle handles a text frame that calls a tool, and reports whether it does. allowed is whether the client
// may use the desktop.
func (d *desk) handle(c command, text []byte, allowed bool) bool {
	if !desktop.Known(c.Type) && c.Type != shellTool {
		return false
	}
	next := call{tool: c.Type, id: c.ID, text: bytes.Clone(text)}
	if !allowed {
		d.fail(&next, "cua_disabled", "this session has no desktop: create it from the template cua")
		return true
	}
	if c.Type == shellTool {
		if c.Command != nil {
			return false
		}
		d.fail(&next, "invalid_argument", "command is required")
		return true
	}
	select {
	case d.calls <- next:
	default:
		d.fail(&next, "too_many_calls", "more than 128 calls wait")
	}
	return true
}

// toolAnswer is a text frame about a call.
type toolAnswer struct {
	Type     string             `json:"type"`
	ID       json.RawMessage    `json:"id,omitempty"`
	Tool     string             `json:"tool"`
	Elements *[]desktop.Element `json:"elements,omitempty"`
	Error    string             `json:"error,omitempty"`
	Message  string             `json:"message,omitempty"`
}

// answer calls a tool. A screenshot is one binary frame, any other answer is one text frame.
func (d *desk) answer(c *call) {
	got, err := d.Do(context.Background(), c.tool, c.text)
	switch {
	case err != nil:
		d.fail(c, kind.Code(err), kind.Message(err))
	case got.PNG != nil:
		d.out.send(frame.Binary, got.PNG)
	case got.Elements != nil:
		d.out.text(toolAnswer{Type: "desktop_result", ID: c.id, Tool: c.tool, Elements: &got.Elements})
	default:
		d.out.text(toolAnswer{Type: "desktop_result", ID: c.id, Tool: c.tool})
	}
}

// fail answers a call that was not successful.
func (d *desk) fail(c *call, code, why string) {
	d.out.text(toolAnswer{Type: "desktop_error", ID: c.id, Tool: c.tool, Error: code, Message: why})
}
