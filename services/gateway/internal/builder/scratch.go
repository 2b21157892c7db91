package builder

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// scratchPrefix begins the names of directories in which an image is until it is packed.
// Each has a lock for as long as its gateway lives.
const scratchPrefix = "millrace-build-"

// newScratch makes one, which goes with done.
func newScratch() (dir string, done func(), err error) {
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		os.RemoveAll(dir) //nolint:errcheck // it is empty
		return "", nil, err
	}
	return dir, func() {
		os.RemoveAll(dir) //nolint:errcheck // the next gateway tries again
		lock.Close()      //nolint:errcheck // nothing was written
	}, nil
}

// lockDir locks a directory, unless somebody has.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	return f, nil
}

// young is how old a directory is that may be about to be locked.
const young = time.Minute

// sweepScratch removes what gateways left that were killed.
func sweepScratch(age time.Duration) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*")) //nolint:errcheck // the pattern is good
	for _, dir := range left {
		if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < age {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			os.RemoveAll(dir) //nolint:errcheck // the next gateway tries again
			lock.Close()      //nolint:errcheck // nothing was written
		}
	}
}
