package builder

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// scratchPrefix is the name prefix of the directories that hold an image until it is packed.
// Each is locked for as long as its gateway runs.
const scratchPrefix = "millrace-build-"

// newScratch creates a scratch directory, which done removes.
func newScratch() (dir string, done func(), err error) {
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		os.RemoveAll(dir)
		lock.Close()
	}, nil
}

// lockDir locks a directory, unless it is locked.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// minScratchAge is the age below which a directory may not be locked yet.
const minScratchAge = time.Minute

// sweepScratch removes the directories of killed gateways.
func sweepScratch(age time.Duration) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	for _, dir := range left {
		if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < age {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}
