//go:build linux

package namespace

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Copies of /etc are shared by all daemons of the host with the same templates
// directory. A daemon holds a lock on its copy as long as it runs. Its sandboxes may run
// longer: their states name the copy, and the daemon has recorded where those are.
const (
	etcPrefix = "etc-copy-"
	etcLock   = "etc.lock"
	etcRoots  = "etc-roots" // links to directories of sandboxes, Spec.Dir's parents
)

// lockedEtc is prepareEtc, of a copy that is not removed until lock is closed. It removes
// unused copies when it makes a new one.
func lockedEtc(log *slog.Logger, from, templates, program string) (dir string, lock *os.File, err error) {
	unlock, err := lockEtc(templates)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if dir, err = prepareEtc(from, templates, program); err != nil {
		return "", nil, err
	}
	if lock, err = os.Open(dir); err != nil {
		return "", nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
		return "", nil, errors.Join(os.NewSyscallError("flock", err), lock.Close())
	}
	if err := pruneEtc(templates, dir); err != nil {
		log.Warn("remove unused copies of /etc failed", "in", templates, "err", err)
	}
	return dir, lock, nil
}

// lockEtc serializes making and removing copies.
func lockEtc(templates string) (unlock func(), err error) {
	if err := os.MkdirAll(templates, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(templates, etcLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(os.NewSyscallError("flock", err), f.Close())
	}
	return func() { f.Close() }, nil
}

// pruneEtc removes the copies that no daemon and no sandbox uses.
func pruneEtc(templates, current string) error {
	if err := roots(templates).Forget(); err != nil {
		return err
	}
	copies, err := filepath.Glob(filepath.Join(templates, etcPrefix+"*"))
	if err != nil || len(copies) < 2 {
		return err
	}
	used, err := usedEtc(templates)
	if err != nil {
		return err
	}
	for _, dir := range copies {
		if dir == current || used[dir] || isLocked(dir) {
			continue
		}
		// Renamed first, so that a partial copy is never used.
		gone := filepath.Join(templates, newPrefix+filepath.Base(dir))
		if err := os.RemoveAll(gone); err != nil { // left by a daemon that was killed here
			return err
		}
		if err := os.Rename(dir, gone); err != nil {
			return err
		}
		if err := os.RemoveAll(gone); err != nil {
			return err
		}
	}
	return nil
}

// isLocked reports whether a running daemon uses a copy.
func isLocked(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// usedEtc returns the copies that sandboxes in the recorded directories use.
func usedEtc(templates string) (map[string]bool, error) {
	boot, err := live.BootID()
	if err != nil {
		return nil, err
	}
	sandboxes, err := roots(templates).Dirs()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, dir := range sandboxes {
		if s, err := live.Load(dir); err == nil && mayRun(&s, boot) {
			used[s.Etc] = true
		}
	}
	return used, nil
}

// mayRun reports whether a sandbox runs, or was about to start.
func mayRun(s *live.State, boot string) bool {
	if s.PID == 0 || s.Boot != boot {
		return s.Boot == boot
	}
	start, err := live.StartTime(s.PID)
	return err == nil && start == s.Start
}

// roots returns the directories of sandboxes that may use copies of /etc.
func roots(templates string) live.Roots { return live.Roots(filepath.Join(templates, etcRoots)) }
