package processes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/output"
)

// keyboard is the local terminal as input, in raw mode.
type keyboard struct {
	in      *os.File
	restore func()
}

// keyboard puts the local terminal into raw mode if its keys are forwarded to a terminal
// of the process; otherwise it returns nil.
func (a *app) keyboard(at *attachment) (*keyboard, error) {
	in, ok := a.In.(*os.File)
	if !ok || !at.tty || !at.stdin || !output.IsTerminal(in) {
		return nil, nil
	}
	restore, err := output.Raw(in)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return &keyboard{in: in, restore: restore}, nil
}

// resizes sets the size of the process's terminal, now has, to the local one's, and
// follows each change until ctx ends.
func (k *keyboard) resizes(ctx context.Context, c *client.Client, id string, has client.Winsize, report func(string, ...any)) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGWINCH)
	set := func() {
		var now client.Winsize
		now.Cols, now.Rows = output.Size(k.in)
		if now == has || now.Cols == 0 || now.Rows == 0 {
			return
		}
		if err := c.Resize(ctx, id, now); err == nil {
			has = now
		} else if ctx.Err() == nil {
			report("resize: %v", err)
		}
	}
	set()
	go func() {
		defer signal.Stop(ch)
		for {
			select {
			case <-ch:
				set()
			case <-ctx.Done():
				return
			}
		}
	}()
}

// detacher returns a reader of the pressed keys. It calls leave on Ctrl-P Ctrl-Q and when
// the terminal closes.
func (k *keyboard) detacher(leave func()) *detacher {
	d := &detacher{keys: make(chan keys), leave: leave}
	go func() {
		for {
			buf := make([]byte, client.InputChunk)
			n, err := k.in.Read(buf)
			d.keys <- keys{buf[:n], err}
			if err != nil {
				return
			}
		}
	}()
	return d
}

const (
	ctrlP = 0x10
	ctrlQ = 0x11
	// ctrlPDelay is how long a Ctrl-P is delayed, so that Ctrl-P Ctrl-Q at typing speed
	// never reaches the process.
	ctrlPDelay = 300 * time.Millisecond
)

// keys holds bytes read from the terminal and the error that ended the read.
type keys struct {
	b   []byte
	err error
}

// detacher reads keys until Ctrl-P Ctrl-Q. A Ctrl-P without Ctrl-Q reaches the process
// with the next key or after ctrlPDelay. A later Ctrl-Q still detaches.
type detacher struct {
	keys    chan keys
	leave   func()
	out     []byte // read and not yet returned
	last    bool   // the last key was Ctrl-P
	pending []byte // the delayed Ctrl-P, not yet in out
	err     error
}

// Read returns keys, and io.EOF after leave was called.
func (d *detacher) Read(p []byte) (int, error) {
	for len(d.out) == 0 && d.err == nil {
		var late <-chan time.Time
		if len(d.pending) > 0 {
			late = time.After(ctrlPDelay)
		}
		select {
		case k := <-d.keys:
			d.take(k)
		case <-late:
			d.flushPending()
		}
	}
	if len(d.out) == 0 {
		return 0, d.err
	}
	n := copy(p, d.out)
	d.out = d.out[n:]
	return n, nil
}

func (d *detacher) take(k keys) {
	for b := k.b; len(b) > 0; {
		key, n := controlKey(b)
		switch {
		case d.last && key == ctrlQ:
			d.end()
			return
		case key == keyReleased: // of an earlier key
			d.flushPending()
			d.out = append(d.out, b[:n]...)
		default:
			d.flushPending()
			if d.last = key == ctrlP; d.last {
				d.pending = append(d.pending, b[:n]...)
			} else {
				d.out = append(d.out, b[:n]...)
			}
		}
		b = b[n:]
	}
	if k.err != nil { // a raw terminal ends only by closing
		d.end()
	}
}

func (d *detacher) flushPending() { d.out, d.pending = append(d.out, d.pending...), d.pending[:0] }

func (d *detacher) end() {
	d.pending, d.err = nil, io.EOF
	d.leave()
}

// keyReleased is the result of controlKey for the release of any key.
const keyReleased = 0xff

// controlKey returns the control character of the key that b begins with, and the key's
// length. Programs may switch a terminal to escape sequences for keys; controlKey decodes
// those with Ctrl alone: ESC [ 112 ; 5 u (kitty, fixterms) and ESC [ 27 ; 5 ; 112 ~
// (xterm). For any other key it returns 0.
func controlKey(b []byte) (key byte, n int) {
	if b[0] == ctrlP || b[0] == ctrlQ {
		return b[0], 1
	}
	rest, ok := bytes.CutPrefix(b, []byte("\x1b["))
	n = bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > ';' })
	if !ok || n < 0 {
		return 0, 1
	}
	fields, final := strings.Split(string(rest[:n]), ";"), rest[n]
	n += len("\x1b[") + 1
	switch {
	case final == 'u' && len(fields) >= 2:
	case final == '~' && len(fields) == 3 && fields[0] == "27":
		fields = []string{fields[2], fields[1]}
	default:
		return 0, n
	}
	code, _, _ := strings.Cut(fields[0], ":")
	mods, event, _ := strings.Cut(fields[1], ":")
	const ctrl, locks = 4, 64 | 128 // the modifiers are reported plus 1
	if m, err := strconv.Atoi(mods); event == "3" {
		return keyReleased, n
	} else if err != nil || (m-1)&^locks != ctrl {
		return 0, n
	}
	switch code {
	case "112":
		return ctrlP, n
	case "113":
		return ctrlQ, n
	}
	return 0, n
}
