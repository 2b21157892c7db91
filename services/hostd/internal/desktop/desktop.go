package desktop

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Geometry of the screen.
const (
	Width  = 1920
	Height = 1080
	screen = "1920x1080x24"
)

const (
	defaultDisplay = ":0"
	displayVar     = "DISPLAY"
	readyTimeout   = 10 * time.Second // time that a call waits for the display
)

// Config configures a Desktop.
type Config struct {
	Environ []string                 // environment of its programs
	Setting func(name string) string // current value of a variable of the conversation; nil: none are set
	Log     func(error)              // receives why a program ended; nil: discarded
	Shared  bool                     // whether another process runs the desktop: this one uses it only
}

// Desktop is the desktop of a sandbox. Its methods may be called concurrently.
type Desktop struct {
	cfg     Config
	display string // such as ":0"
	environ []string

	stop context.CancelFunc // nil: not started
	all  sync.WaitGroup

	mu      sync.Mutex
	up      bool
	err     error         // why the display is not up; nil: it was not started, or starts
	changed chan struct{} // closed when up or err changes
}

var local = regexp.MustCompile(`^:\d{1,5}$`)

// New returns a desktop, which is not started. The variable DISPLAY selects the display if it names a
// local one; the default is :0.
func New(cfg Config) *Desktop {
	d := &Desktop{cfg: cfg, display: defaultDisplay, changed: make(chan struct{})}
	for _, v := range cfg.Environ {
		if value, ok := strings.CutPrefix(v, displayVar+"="); ok && local.MatchString(value) {
			d.display = value
		}
	}
	d.environ = d.withDisplay(cfg.Environ)
	return d
}

// withDisplay returns an environment that names the display.
func (d *Desktop) withDisplay(environ []string) []string {
	env := make([]string, 0, len(environ)+1)
	for _, v := range environ {
		if !strings.HasPrefix(v, displayVar+"=") {
			env = append(env, v)
		}
	}
	return append(env, displayVar+"="+d.display)
}

// Start starts the desktop. It does not wait, and has no effect if the desktop was started before.
func (d *Desktop) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.all.Go(func() { d.supervise(ctx) })
}

// Stop ends the programs that Start started, and waits for them.
func (d *Desktop) Stop() {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
		d.all.Wait()
	}
}

// Wait waits until a started desktop is ready. Its error says why it is not after some seconds.
func (d *Desktop) Wait(ctx context.Context) error { return d.ready(ctx) }

// Environ returns an environment for programs that may use the display. It waits until a started
// desktop is ready, within limits, so that the first program finds it. Without a desktop the
// environment is returned unchanged.
func (d *Desktop) Environ(environ []string) []string {
	if !d.Started() {
		return environ
	}
	d.ready(context.Background()) //nolint:errcheck // a program reports that it cannot open the display
	return d.withDisplay(environ)
}

// Started reports whether the desktop was started.
func (d *Desktop) Started() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stop != nil
}

// set records whether the display is up.
func (d *Desktop) set(up bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.up, d.err = up, err
	close(d.changed)
	d.changed = make(chan struct{})
}

// ready waits until the display is up. A server that is not installed is reported at once.
func (d *Desktop) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		d.mu.Lock()
		up, err, changed := d.up, d.err, d.changed
		d.mu.Unlock()
		if up {
			return nil
		}
		if errors.Is(err, exec.ErrNotFound) {
			return d.unavailable(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return d.unavailable(err)
		}
	}
}

func (d *Desktop) unavailable(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return kind.Coded(kind.Unavailable, "open display", "", "display_unavailable", "Xvfb is not installed in this sandbox: create it from the template cua")
	}
	return kind.Coded(kind.Unavailable, "open display", "", "display_unavailable", "the display "+d.display+" is not ready: "+err.Error())
}

// socket returns the path of the display's socket.
func (d *Desktop) socket() string { return "/tmp/.X11-unix/X" + d.display[1:] }

// answers reports whether a server accepts connections.
func (d *Desktop) answers() bool {
	c, err := net.Dial("unix", d.socket()) //nolint:noctx // a socket of this machine accepts or refuses at once
	if err != nil {
		return false
	}
	c.Close()
	return true
}
