package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// StartTool builds a program of another module, as `go install` names it, and runs it until the end of the test.
// args returns its arguments for the address at which it has to listen. It returns that address when the program
// accepts connections.
func StartTool(t testing.TB, pkg string, args func(addr string) []string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	install := exec.CommandContext(ctx, "go", "install", pkg)
	install.Dir, install.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if msg, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install %s: %w\n%s", pkg, err, msg)
	}
	addr, err := FreeAddr()
	if err != nil {
		return "", err
	}
	module, _, _ := strings.Cut(pkg, "@")
	name := filepath.Base(module)
	p := &Program{Name: name, bin: filepath.Join(dir, name), args: args(addr), env: []string{"HOME=" + dir}, log: filepath.Join(dir, name+".log")}
	if err := p.start(); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		p.Kill9()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.Log())
		}
	})
	accepts := func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	if !Poll(readyTimeout, func() bool { return accepts() || !p.Running() }) || !p.Running() {
		return "", fmt.Errorf("%s does not listen at %s\n%s", name, addr, p.Log())
	}
	return addr, nil
}
