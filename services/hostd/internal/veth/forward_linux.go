package veth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	forwardPath = "/proc/sys/net/ipv4/ip_forward"
	forwardOn   = "1"

	// runDir is empty after a boot, as the setting is.
	runDir = "/run/millrace"
)

// forward enables forwarding of packets between this machine's interfaces. The value before is
// saved for [Net.Close], possibly of a later run or of another host on this machine.
func (n *Net) forward() error {
	was, err := os.ReadFile(forwardPath)
	if err == nil && strings.TrimSpace(string(was)) == forwardOn {
		return nil
	}
	saved, err := savedForward()
	if err == nil {
		err = os.MkdirAll(runDir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(saved, was, 0o600)
	}
	if err == nil {
		err = os.WriteFile(forwardPath, []byte(forwardOn), 0o644)
	}
	if err != nil {
		return fmt.Errorf("enable forwarding: %w", err)
	}
	n.cfg.Log.Warn("forwarding between this machine's interfaces enabled", "setting", "net.ipv4.ip_forward", "was", strings.TrimSpace(string(was)))
	return nil
}

// unforward restores the setting once no host on this machine has rules any more.
func unforward(ctx context.Context) error {
	saved, err := savedForward()
	if err != nil {
		return err
	}
	was, err := os.ReadFile(saved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was enabled before
	}
	if err != nil {
		return err
	}
	tables, err := exec.CommandContext(ctx, "nft", "list", "tables", "inet").Output()
	if err != nil {
		return fmt.Errorf("nft list tables: %w", err)
	}
	if strings.Contains(string(tables), " "+tablePrefix) {
		return nil
	}
	if err := os.WriteFile(forwardPath, was, 0o644); err != nil {
		return fmt.Errorf("disable forwarding: %w", err)
	}
	return os.Remove(saved)
}

// savedForward returns the file for the value before, of this thread's network namespace.
func savedForward() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", err
	}
	return filepath.Join(runDir, fmt.Sprintf("ip_forward-%d", st.Ino)), nil
}
