package cli

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
)

// keyboard is the terminal that we read, in raw mode.
type keyboard struct {
	in      *os.File
	restore func()
}

// keyboard puts our terminal into raw mode if at forwards its keys to a terminal
// of the process; otherwise it returns nil.
func (a *app) keyboard(at *attachment) (*keyboard, error) {
	in, ok := a.In.(*os.File)
	if !ok || !at.tty || !at.stdin || !isTerminal(in) {
		return nil, nil
	}
	restore, err := raw(in)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return &keyboard{in: in, restore: restore}, nil
}

// resizes gives the process's terminal the size of ours if that is not has, and
// then each new size until ctx ends.
func (k *keyboard) resizes(ctx context.Context, c *client, id string, has winsize, say func(string, ...any)) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGWINCH)
	set := func() {
		now := size(k.in)
		if now == has || now.Cols == 0 || now.Rows == 0 {
			return
		}
		if err := c.resize(ctx, id, now); err == nil {
			has = now
		} else if ctx.Err() == nil {
			say("resize: %v", err)
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

// detacher returns the keys that are pressed. Ctrl-P Ctrl-Q, and a terminal that
// is gone, call leave.
func (k *keyboard) detacher(leave func()) *detacher {
	d := &detacher{keys: make(chan keys), leave: leave}
	go func() {
		for {
			buf := make([]byte, inputChunk)
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
	// holdCtrlP is how long a Ctrl-P is held back, so that a Ctrl-Q that follows as
	// fast as people type it leaves no trace in the process.
	holdCtrlP = 300 * time.Millisecond
)

// keys are bytes that were read, or why there are no more.
type keys struct {
	b   []byte
	err error
}

// detacher reads keys until Ctrl-P Ctrl-Q. A Ctrl-P always reaches the process: with
// the next key, or after holdCtrlP. A Ctrl-Q detaches however late it follows.
type detacher struct {
	keys  chan keys
	leave func()
	out   []byte // read and not yet returned
	last  bool   // the last key was Ctrl-P
	held  []byte // that Ctrl-P, if it is not in out
	err   error
}

// Read returns keys; io.EOF once leave was called.
func (d *detacher) Read(p []byte) (int, error) {
	for len(d.out) == 0 && d.err == nil {
		var late <-chan time.Time
		if len(d.held) > 0 {
			late = time.After(holdCtrlP)
		}
		select {
		case k := <-d.keys:
			d.take(k)
		case <-late:
			d.giveHeld()
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
		case key == keyReleased: // of a key before
			d.giveHeld()
			d.out = append(d.out, b[:n]...)
		default:
			d.giveHeld()
			if d.last = key == ctrlP; d.last {
				d.held = append(d.held, b[:n]...)
			} else {
				d.out = append(d.out, b[:n]...)
			}
		}
		b = b[n:]
	}
	if k.err != nil { // a raw terminal has no other end than its own
		d.end()
	}
}

func (d *detacher) giveHeld() { d.out, d.held = append(d.out, d.held...), d.held[:0] }

func (d *detacher) end() {
	d.held, d.err = nil, io.EOF
	d.leave()
}

// keyReleased is the key of a report that a key was released.
const keyReleased = 0xff

// controlKey returns the control character of the key that b begins with, and the key's
// length. Programs may have a terminal report keys in sequences, of which it knows
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
