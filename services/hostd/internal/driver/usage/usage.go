// Package usage measures the disk space of sandboxes and volumes on the host.
package usage

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Disk measures the disk space of a directory repeatedly. The sandbox decides how many
// files the directory has, and so how long that would take: with a million files it would
// keep hostd busy, and never be measured completely. So a scan ends after some number of
// files, and directories with many files are scanned less often. The zero value is
// ready to use and safe for concurrent use.
type Disk struct {
	most int // maximum number of files in a scan, and of open ones; default 200,000, about 0.3 s
	step int // number of files per skipped scan; default 5,000

	mu    sync.Mutex
	bytes uint64
	files uint64
	skip  int           // scans to skip
	cpu   time.Duration // CPU time before the last complete scan; 0: there was none
}

var errEnough = errors.New("enough files")

// Of returns the disk space of the directory path, and the number of files and directories
// in it: in a very large directory, of those in the current or the last scan. A scan that
// ctx ends returns the result so far. Deleted files that the processes have open or mapped
// are added, except those in transit through a socket. cpu is the exact CPU time of all
// processes that can write there: as long as it is the same, nothing is scanned
// again. 0: it is not counted so exactly.
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
	named, n, err := d.scan(ctx, func(each func() error) (uint64, error) { return live.DiskUsage(ctx, path, each) })
	if err != nil && !errors.Is(err, errEnough) {
		return 0, 0, err
	}
	open, opened, err2 := d.scan(ctx, func(each func() error) (uint64, error) { return deletedFiles(path, processes, each) })
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

// scan scans until it has seen enough files, or has no more time: errEnough.
func (d *Disk) scan(ctx context.Context, measure func(each func() error) (uint64, error)) (bytes, n uint64, err error) {
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
