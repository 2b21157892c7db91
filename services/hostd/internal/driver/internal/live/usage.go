package live

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// Usage measures the disk that a sandbox's directory takes, again and again. What is
// in the directory is the sandbox's affair, and so would be how long that takes: one
// with a million files would keep hostd busy, and not be measured at all. So a look
// ends after some number of files, and who has many is looked at more seldom. Its
// zero value is ready.
type Usage struct {
	most int // files of a look; default 200,000, some 0.3 s
	step int // so many files make a look as long as one that is left out; default 5,000

	mu    sync.Mutex
	bytes uint64
	files uint64
	skip  int // looks that are left out
}

var errEnough = errors.New("enough files")

// Of is the disk space that the directory path takes, and how many files and directories
// are in it: of very many files those that were looked at, or were when they were looked at
// last. What a look that ctx ends has found counts, too.
func (u *Usage) Of(ctx context.Context, path string) (bytes, files uint64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.skip > 0 {
		u.skip--
		return u.bytes, u.files, nil
	}
	most, n := cmp.Or(u.most, 200_000), 0
	bytes, err = diskUsage(ctx, path, func(string, *unix.Stat_t) error {
		if n++; n >= most {
			return errEnough
		}
		return nil
	})
	whole := err == nil
	if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
		return 0, 0, err
	}
	if whole || bytes > u.bytes {
		u.bytes = bytes
	}
	if whole || uint64(n) > u.files {
		u.files = uint64(n)
	}
	u.skip = n / cmp.Or(u.step, 5_000)
	return u.bytes, u.files, nil
}
