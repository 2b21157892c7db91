package rig

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Options holds the options of Up. The zero value suits most tests.
type Options struct {
	Driver string       // default Driver
	Args   []string     // additional arguments of `up`
	Env    []string     // additional environment
	Binary string       // default the binary under test
	Data   string       // data directory; default a new one
	HTTPS  *http.Client // client for a gateway with TLS, whose URL is https; default: none
}

// Up is a `millrace up`: all services in one process.
type Up struct {
	*Nest
	*Program
	*API
	Data string // data directory
}

var errEnded = errors.New("exit status 0")

const readyTimeout = 2 * time.Minute

// NewUp runs `millrace up` until the end of the test.
func NewUp(t testing.TB, opt Options) *Up {
	t.Helper()
	if opt.Driver == "" {
		opt.Driver = Driver(t)
	}
	u, err := StartUp(opt)
	if err != nil {
		t.Fatal(err)
	}
	u.closeAfter(t)
	return u
}

// StartUp runs `millrace up`; the caller closes it.
func StartUp(opt Options) (*Up, error) {
	if opt.Driver == "" {
		var err error
		if opt.Driver, err = driver(); err != nil {
			return nil, err
		}
	}
	if opt.Binary == "" {
		var err error
		if opt.Binary, err = built(); err != nil {
			return nil, err
		}
	}
	nest, err := newNest()
	if err != nil {
		return nil, err
	}
	addr, err := nest.freeAddr()
	if err != nil {
		return nil, err
	}
	u := &Up{Nest: nest, Data: cmp.Or(opt.Data, filepath.Join(nest.Dir, "data")), API: &API{URL: "http://" + addr, made: &nest.made}}
	if opt.HTTPS != nil {
		u.API.URL, u.API.Client = "https://"+addr, opt.HTTPS
	}
	args := append([]string{"up", "--listen", addr, "--data", u.Data, "--driver", opt.Driver, "--warm", "2", "--log-level", "info"}, opt.Args...)
	if u.Program, err = nest.addOf(opt.Binary, "up", opt.Env, args...); err == nil {
		err = u.await()
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, nest.Dump())
		u.Program.Kill9IfAny()
		nest.Close()
		return nil, err
	}
	nest.last = func() { u.API.KillAll() }
	return u, nil
}

// await waits until up has written its address file, which means that it is ready and its
// host is alive, and reads its key.
func (u *Up) await() error {
	if err := u.API.AwaitReady(readyTimeout, u.Program); err != nil {
		return err
	}
	announced := Poll(readyTimeout, func() bool {
		_, err := os.Stat(u.address())
		return err == nil || !u.Running()
	})
	if !announced || !u.Running() {
		return fmt.Errorf("no host is alive after %v", readyTimeout)
	}
	raw, err := os.ReadFile(filepath.Join(u.Data, "key"))
	if err != nil {
		return err
	}
	u.API.Key = strings.TrimSpace(string(raw))
	return nil
}

// Restart starts up again with the same data and address, and returns when it is ready.
func (u *Up) Restart() error {
	if err := os.Remove(u.address()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := u.Program.Restart(); err != nil {
		return err
	}
	return u.await()
}

// SwitchBinary kills up and restarts it from another binary.
func (u *Up) SwitchBinary(binary string) error {
	u.Kill9()
	u.bin = binary
	return u.Restart()
}

// SwitchDrivers kills up and restarts it with other drivers.
func (u *Up) SwitchDrivers(drivers string) error {
	u.Kill9()
	u.args = slices.Clone(u.args)
	u.args[slices.Index(u.args, "--driver")+1] = drivers
	return u.Restart()
}

// address returns the file with up's URL for client commands.
func (u *Up) address() string { return filepath.Join(u.Data, "address") }

// Kill9IfAny is Kill9 for a program that may not have started.
func (p *Program) Kill9IfAny() {
	if p != nil && p.cmd != nil {
		p.Kill9()
	}
}

// AwaitReady waits for /readyz while the program runs.
func (a *API) AwaitReady(timeout time.Duration, p *Program) error {
	last := "no answer"
	c := http.Client{Timeout: 2 * time.Second}
	if a.Client != nil {
		c.Transport = a.Client.Transport
	}
	ok := Poll(timeout, func() bool {
		if p != nil && !p.Running() {
			return true
		}
		resp, err := c.Get(a.URL + "/readyz")
		if err != nil {
			last = err.Error()
			return false
		}
		resp.Body.Close()
		last = resp.Status
		return resp.StatusCode == http.StatusOK
	})
	if p != nil && !p.Running() {
		return fmt.Errorf("%s ended: %w", p.Name, cmp.Or(p.err, errEnded))
	}
	if !ok {
		return fmt.Errorf("%s is not ready after %v: %s", a.URL, timeout, last)
	}
	return nil
}

// SkipUnless skips a test if `up` does not start with these options, because the driver
// does not work on this machine or its programs are not built, which ./test.sh does.
func SkipUnless(t testing.TB, opt Options) {
	t.Helper()
	u, err := StartUp(opt)
	for _, why := range []string{"does not work here", "built from source"} {
		if err != nil && strings.Contains(err.Error(), why) {
			t.Skipf("driver %s: its program %s", opt.Driver, why)
		}
	}
	if err == nil {
		err = u.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
