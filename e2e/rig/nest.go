package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Nest is the programs that share a directory and a fate.
type Nest struct {
	Dir      string
	programs []*Program
	made     made
	given    []string // addresses that freeAddr gave
	last     func()   // what is done while all still runs, before the end
	token    string   // of the NATS servers, for all programs; empty: none
	closers  []func() error
}

// newNest makes a nest in a directory of its own.
func newNest() (*Nest, error) {
	dir, err := os.MkdirTemp("", "millrace-e2e-")
	if err != nil {
		return nil, err
	}
	return &Nest{Dir: dir}, nil
}

// add starts a program of the binary under test.
func (n *Nest) add(name string, env []string, args ...string) error {
	bin, err := built()
	if err == nil {
		_, err = n.addOf(bin, name, env, args...)
	}
	return err
}

// addOf starts a program of the binary bin.
func (n *Nest) addOf(bin, name string, env []string, args ...string) (*Program, error) {
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.Dir, "GOTRACEBACK=all", "TMPDIR=" + os.TempDir()}
	// What drivers need was built there; to build it again takes minutes.
	if cache, err := os.UserCacheDir(); err == nil {
		base = append(base, "XDG_CACHE_HOME="+cache)
	}
	if n.token != "" {
		base = append(base, "MILLRACE_NATS_TOKEN="+n.token)
	}
	p := &Program{Name: name, bin: bin, args: args, env: append(base, env...), log: filepath.Join(n.Dir, name+".log")}
	if err := p.start(); err != nil {
		return nil, err
	}
	n.programs = append(n.programs, p)
	return p, nil
}

// Program gives a program by its name; a name that is not is a bug of the test.
func (n *Nest) Program(name string) *Program {
	i := slices.IndexFunc(n.programs, func(p *Program) bool { return p.Name == name })
	if i < 0 {
		panic("no program " + name)
	}
	return n.programs[i]
}

// Close ends everything, last begun first, and reports what did not end well
// and what was left behind; that is then ended, too.
func (n *Nest) Close() error {
	if n.last != nil {
		n.last()
	}
	var errs []error
	for _, p := range slices.Backward(n.programs) {
		if !p.Running() {
			continue // the test ended it, and knows how
		}
		if err := p.Term(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := n.sweep(); err != nil {
		errs = append(errs, err)
	}
	for _, c := range n.closers {
		errs = append(errs, c())
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const sweepTimeout = 5 * time.Second

// sweep waits until nothing of the nest is left, and ends what stays.
func (n *Nest) sweep() error {
	var left []leftover
	gone := Poll(sweepTimeout, func() bool {
		left = append(leftovers(n.Dir), cgroups(n.made.all())...)
		return len(left) == 0
	})
	if gone {
		return nil
	}
	var names []string
	for _, l := range left {
		names = append(names, l.String())
		switch {
		case l.pid > 0:
			syscall.Kill(l.pid, syscall.SIGKILL) //nolint:errcheck // it ended meanwhile
		case l.mount != "":
			syscall.Unmount(l.mount, syscall.MNT_DETACH) //nolint:errcheck // told below
		}
	}
	return fmt.Errorf("left behind: %s", strings.Join(names, "; "))
}

// Dump is the logs of all programs.
func (n *Nest) Dump() string {
	var b strings.Builder
	for _, p := range n.programs {
		fmt.Fprintf(&b, "--- %s %s\n%s", p.Name, strings.Join(p.args, " "), p.Log())
	}
	return b.String()
}

// keep ties the nest to a test.
func (n *Nest) keep(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		dump := ""
		if t.Failed() {
			dump = n.Dump()
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if dump != "" {
			t.Log(dump)
		}
	})
}

// Poll asks until the answer is yes, and reports whether it was in time.
func Poll(timeout time.Duration, yes func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return yes()
		case <-tick.C:
		}
	}
	return true
}

// freeAddr is a FreeAddr that no program of the nest was given before: one that
// does not listen yet is not seen otherwise.
func (n *Nest) freeAddr() (string, error) {
	for {
		addr, err := FreeAddr()
		if err != nil || !slices.Contains(n.given, addr) {
			n.given = append(n.given, addr)
			return addr, err
		}
	}
}

// FreeAddr is a loopback address that nobody listens on. It is none of those that
// the kernel gives to who names none, so that neither another's connection nor
// another call is likely to get it before it is used.
func FreeAddr() (string, error) {
	const low, high, tries = 10_000, 32_000, 100
	var last error
	for range tries {
		addr := fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low)) //nolint:gosec // no secret
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, ln.Close()
		}
		last = err
	}
	return "", last
}
