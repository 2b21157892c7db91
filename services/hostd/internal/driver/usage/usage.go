// Package usage measures what sandboxes and volumes take of the host's disk.
package usage

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Disk measures the disk that a directory takes, again and again. What is in the
// directory is the sandbox's affair, and so would be how long that takes: one with a
// million files would keep hostd busy, and not be measured at all. So a look ends after
// some number of files, and who has many is looked at more seldom. Its zero value is
// ready, and may be used concurrently.
type Disk struct {
	most int // files of a look, and open ones; default 200,000, some 0.3 s
	step int // so many files make a look as long as one that is left out; default 5,000

	mu    sync.Mutex
	bytes uint64
	files uint64
	skip  int           // looks that are left out
	cpu   time.Duration // that was used before a look that saw all; 0: there was none
}

var errEnough = errors.New("enough files")

// Of is the disk space that the directory path takes, and how many files and directories
// are in it: of very many files those that were looked at, or were when they were looked at
// last. What a look that ctx ends has found counts, too. Files that have no name any more
// and that the processes have open or mapped are added; not seen are those that are on
// their way through a socket. cpu is the time that all who may write there have used, to
// the last of it: nothing is looked at anew as long as it is the same. 0: nobody counts it so.
func (d *Disk) Of(ctx context.Context, path string, cpu time.Duration, processes ...int) (bytes, files uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cpu != 0 && d.cpu == cpu {
		return d.bytes, d.files, nil
	}
	if d.skip > 0 {
		d.skip--
		return d.bytes, d.files, nil
	}
	named, n, err := d.look(ctx, func(each func() error) (uint64, error) { return live.DiskUsage(ctx, path, each) })
	if err != nil && !errors.Is(err, errEnough) {
		return 0, 0, err
	}
	open, opened, err2 := d.look(ctx, func(each func() error) (uint64, error) { return nameless(path, processes, each) })
	whole := err == nil && err2 == nil
	if d.cpu = 0; whole {
		d.cpu = cpu
	}
	if whole || named+open > d.bytes {
		d.bytes = named + open
	}
	if whole || n > d.files {
		d.files = n
	}
	d.skip = int(n+opened) / cmp.Or(d.step, 5_000)
	return d.bytes, d.files, nil
}

// look measures until it has seen enough files, or has no more time: errEnough.
func (d *Disk) look(ctx context.Context, measure func(each func() error) (uint64, error)) (bytes, n uint64, err error) {
	most := uint64(cmp.Or(d.most, 200_000))
	bytes, err = measure(func() error {
		if n++; n >= most || ctx.Err() != nil {
			return errEnough
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		err = errEnough
	}
	return bytes, n, err
}
