package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	held  bool   // and is not in out
	err   error
}

// Read returns keys; io.EOF once leave was called.
func (d *detacher) Read(p []byte) (int, error) {
	for len(d.out) == 0 && d.err == nil {
		var late <-chan time.Time
		if d.held {
			late = time.After(holdCtrlP)
		}
		select {
		case k := <-d.keys:
			d.take(k)
		case <-late:
			d.out, d.held = append(d.out, ctrlP), false
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
	for _, b := range k.b {
		if d.last && b == ctrlQ {
			d.end()
			return
		}
		if d.held {
			d.out = append(d.out, ctrlP)
		}
		d.last = b == ctrlP
		if d.held = d.last; !d.held {
			d.out = append(d.out, b)
		}
	}
	if k.err != nil { // a raw terminal has no other end than its own
		d.end()
	}
}

func (d *detacher) end() {
	d.held, d.err = false, io.EOF
	d.leave()
}
