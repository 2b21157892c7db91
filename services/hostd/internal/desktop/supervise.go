package desktop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	minBackoff   = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	stable       = 10 * time.Second // a program that ran for this long is restarted at once
	startTimeout = 20 * time.Second
	lookAgain    = 500 * time.Millisecond // between checks of a server that another program started
)

// chromium is the command line of the browser, which cannot create a sandbox within a sandbox.
var chromium = []string{
	"chromium", "--no-sandbox", "--no-zygote", "--disable-dev-shm-usage", "--disable-crash-reporter", "--disable-breakpad", "--disable-gpu",
	"--no-first-run", "--test-type", "--remote-debugging-port=9222", "--window-position=0,0", fmt.Sprintf("--window-size=%d,%d", Width, Height),
}

var (
	errEnded  = errors.New("its server ended")
	errAbsent = errors.New("it has no server")
)

// repeat calls run until ctx ends, with a backoff, and logs each reason that differs from the one before.
func (d *Desktop) repeat(ctx context.Context, run func(context.Context) error) {
	var last string
	for delay := minBackoff; ctx.Err() == nil; {
		begun := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != last && d.cfg.Log != nil {
			last = err.Error()
			d.cfg.Log(err)
		}
		if time.Since(begun) > stable {
			delay = minBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxBackoff)
	}
}

// supervise keeps the display up until ctx ends.
func (d *Desktop) supervise(ctx context.Context) {
	d.repeat(ctx, func(ctx context.Context) error {
		var err error
		switch {
		case d.answers():
			err = d.adopt(ctx)
		case d.cfg.Shared:
			err = errAbsent
		default:
			err = d.serve(ctx)
		}
		d.set(false, err)
		return err
	})
}

// adopt uses a server that another program started, until it has ended.
func (d *Desktop) adopt(ctx context.Context) error {
	d.set(true, nil)
	for tick := time.NewTicker(lookAgain); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
			if !d.answers() {
				tick.Stop()
				return errEnded
			}
		}
	}
}

// serve runs the server, and the other programs on it, until the server has ended.
func (d *Desktop) serve(ctx context.Context) error {
	os.Remove(d.socket()) // of a server that was killed, or of the sandbox from which this one was copied
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// -displayfd reports when the server accepts connections, and no lock file is used. The socket in the abstract name space
	// would be shared by all sandboxes of a network.
	cmd, said := d.command(ctx, "Xvfb", d.display, "-screen", "0", screen, "-displayfd", "3", "-noreset", "-nolisten", "tcp", "-nolisten", "local")
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	r.SetReadDeadline(time.Now().Add(startTimeout))
	_, ready := io.ReadFull(r, make([]byte, 1))
	if ready != nil {
		err = errors.Join(ready, kill(cmd), cmd.Wait())
		return said.explain("Xvfb", err)
	}
	d.set(true, nil)
	inner, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { d.keep(inner, "fluxbox") })
	others.Go(func() {
		d.keep(inner, chromium[0], append(chromium[1:len(chromium):len(chromium)], "--user-data-dir="+d.profile(), "about:blank")...)
	})
	err = cmd.Wait()
	d.set(false, errEnded)
	cancel()
	others.Wait()
	if err == nil {
		err = errEnded
	}
	return said.explain("Xvfb", err)
}

// keep runs a program on the display until ctx ends. One that is not installed is reported once.
func (d *Desktop) keep(ctx context.Context, name string, args ...string) {
	d.repeat(ctx, func(ctx context.Context) error {
		cmd, said := d.command(ctx, name, args...)
		return said.explain(name, cmd.Run())
	})
}

// profile returns the directory of the browser's profile.
func (d *Desktop) profile() string {
	home := "/tmp"
	for _, v := range d.environ {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok && dir != "" {
			home = dir
		}
	}
	return filepath.Join(home, ".browser")
}

// command returns a program on the display, and what it says about its errors. It and its children
// are killed when ctx ends.
func (d *Desktop) command(ctx context.Context, name string, args ...string) (*exec.Cmd, *tail) {
	cmd, said := exec.CommandContext(ctx, name, args...), &tail{}
	cmd.Env, cmd.Stderr = d.environ, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return kill(cmd) }
	cmd.WaitDelay = time.Second // children may hold its standard error
	return cmd, said
}

// kill kills a program and its children.
func kill(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// maxSaid is the number of bytes of a program's standard error that are kept.
const maxSaid = 2 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - maxSaid; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return len(b), nil
}

// String returns the text on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.Join(bytes.Fields(bytes.ToValidUTF8(t.buf, []byte("?"))), []byte(" ")))
}

// explain adds what a program said to the error of its end.
func (t *tail) explain(name string, err error) error {
	if err == nil {
		return nil
	}
	if s := t.String(); s != "" {
		return fmt.Errorf("%s: %w: %s", name, err, s)
	}
	return fmt.Errorf("%s: %w", name, err)
}
