package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/internal/cli/command"
)

// Durability profiles.
const (
	durabilityProcess = "process"
	durabilityPower   = "power"
)

func syncAlways(durability string) (bool, error) {
	switch durability {
	case durabilityProcess:
		return false, nil
	case durabilityPower:
		return true, nil
	}
	return false, fmt.Errorf("--durability %s: must be %s or %s", durability, durabilityProcess, durabilityPower)
}

// lockTimeout is how long lock waits for another process to exit, for example one that was
// just killed.
const lockTimeout = 2 * time.Second

// lock locks a data directory until unlock or the end of the process: two servers on the
// same files would corrupt them.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		owner := make([]byte, 32)
		n, _ := f.Read(owner)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is used by another process (pid %s): stop it, or set another --data", dir, strings.TrimSpace(string(owner[:n])))
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return func() { f.Close() }, nil
}

func flock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(lockTimeout / 20)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// firstKey returns the given key, else the key of the last start, else a new one, and
// stores it where local client commands find it.
func firstKey(dir, given string) (string, error) {
	path := filepath.Join(dir, command.KeyFile)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key != "" && (given == "" || given == key) {
		return key, nil // no write, which would fail on a full disk
	}
	if key = given; key == "" {
		key = catalog.NewAPIKey()
	}
	if err := writeFile(path, key+"\n"); err != nil {
		return "", fmt.Errorf("store key: %w", err)
	}
	return key, nil
}

// writeFile replaces a file atomically; only its owner can read it.
func writeFile(path, text string) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
