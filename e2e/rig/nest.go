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

// Nest is a group of programs that share a directory and end together.
type Nest struct {
	Dir      string
	programs []*Program
	made     made
	given    []string // addresses from freeAddr
	last     func()   // called at the end, while all programs run
	token    string   // token of the NATS servers; empty: no token
	env      []string // of every program
	exe      string   // binary of every program; default the binary under test
	closers  []func() error
}

// newNest creates a nest in a new directory.
func newNest() (*Nest, error) {
	dir, err := os.MkdirTemp("", "millrace-e2e-")
	if err != nil {
		return nil, err
	}
	return &Nest{Dir: dir}, nil
}

// binary returns the binary of the nest's programs.
func (n *Nest) binary() (string, error) {
	if n.exe != "" {
		return n.exe, nil
	}
	return built()
}

// add starts a program of the nest's binary.
func (n *Nest) add(name string, env []string, args ...string) error {
	bin, err := n.binary()
	if err == nil {
		_, err = n.addOf(bin, name, env, args...)
	}
	return err
}

// addOf starts a program of the binary bin.
func (n *Nest) addOf(bin, name string, env []string, args ...string) (*Program, error) {
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.Dir, "GOTRACEBACK=all", "TMPDIR=" + os.TempDir()}
	// The drivers' programs are cached there; building them takes minutes.
	if cache, err := os.UserCacheDir(); err == nil {
		base = append(base, "XDG_CACHE_HOME="+cache)
	}
	if n.token != "" {
		key := filepath.Join(n.Dir, "master.key") // services create one only for NATS on loopback
		if err := os.WriteFile(key, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
			return nil, err
		}
		base = append(base, "MILLRACE_NATS_TOKEN="+n.token, "MILLRACE_MASTER_KEY="+key)
	}
	p := &Program{Name: name, bin: bin, args: args, env: slices.Concat(base, n.env, env), log: filepath.Join(n.Dir, name+".log")}
	if err := p.start(); err != nil {
		return nil, err
	}
	n.programs = append(n.programs, p)
	return p, nil
}

// Program returns a program by name and panics if it does not exist.
func (n *Nest) Program(name string) *Program {
	i := slices.IndexFunc(n.programs, func(p *Program) bool { return p.Name == name })
	if i < 0 {
		panic("program " + name + " does not exist")
	}
	return n.programs[i]
}

// Close stops all programs in reverse order, and reports failed stops and leftovers, which
// it then kills.
func (n *Nest) Close() error {
	if n.last != nil {
		n.last()
	}
	var errs []error
	for _, p := range slices.Backward(n.programs) {
		if !p.Running() {
			continue // the test ended it
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

// sweep waits until nothing of the nest remains, and kills what does not end.
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
			syscall.Kill(l.pid, syscall.SIGKILL)
		case l.mount != "":
			syscall.Unmount(l.mount, syscall.MNT_DETACH)
		}
	}
	return fmt.Errorf("left behind: %s", strings.Join(names, "; "))
}

// Dump returns the logs of all programs.
func (n *Nest) Dump() string {
	var b strings.Builder
	for _, p := range n.programs {
		fmt.Fprintf(&b, "--- %s %s\n%s", p.Name, strings.Join(p.args, " "), p.Log())
	}
	return b.String()
}

// closeAfter closes the nest at the end of a test.
func (n *Nest) closeAfter(t testing.TB) {
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

// Poll calls yes until it returns true, and reports whether it did within the timeout.
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

// freeAddr returns a FreeAddr that the nest has not used before, because a program that
// does not listen yet is not detected otherwise.
func (n *Nest) freeAddr() (string, error) {
	for {
		addr, err := FreeAddr()
		if err != nil || !slices.Contains(n.given, addr) {
			n.given = append(n.given, addr)
			return addr, err
		}
	}
}

// FreeAddr returns a loopback address without a listener. Its port is outside of the
// ephemeral range, so that another connection is unlikely to get it before it is used.
func FreeAddr() (string, error) {
	const low, high, tries = 10_000, 32_000, 100
	var last error
	for range tries {
		addr := fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low))
		ln, err := net.Listen("tcp", addr)
		if err == nil {
			return addr, ln.Close()
		}
		last = err
	}
	return "", last
}
