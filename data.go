package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/internal/cli"
)

// The durability profiles.
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
	return false, fmt.Errorf("--durability %s: %s or %s", durability, durabilityProcess, durabilityPower)
}

// patience is how long lock waits for a process that is about to die, as one
// does that was just killed.
const patience = 2 * time.Second

// lock makes a data directory ours for as long as we live: two servers on the
// same files would destroy them.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		who := make([]byte, 32)
		n, _ := f.Read(who) //nolint:errcheck // then it is somebody
		f.Close()           //nolint:errcheck // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is used by another process (pid %s): stop it, or give another --data", dir, strings.TrimSpace(string(who[:n])))
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid()) //nolint:errcheck // only told to people
	}
	return func() { f.Close() }, nil //nolint:errcheck // the lock goes with it
}

func flock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(patience / 20)
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

// firstKey is the key that is given, else that of the last start, else a new
// one; it is kept where local verbs find it.
func firstKey(dir, given string) (string, error) {
	path := filepath.Join(dir, cli.KeyFile)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key != "" && (given == "" || given == key) {
		return key, nil // nothing is written: the disk may be full
	}
	if key = given; key == "" {
		key = events.NewAPIKey()
	}
	if err := writeFile(path, key+"\n"); err != nil {
		return "", fmt.Errorf("keep key: %w", err)
	}
	return key, nil
}

// writeFile replaces a file, readable by its owner only, as a whole or not at
// all.
func writeFile(path, text string) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
