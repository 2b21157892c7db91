package output

import (
	"errors"
	"fmt"
	"io"
	"math"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// disk is a file for events that do not fit into the spools while hostd is away or stores
// nothing; at other times nothing is written to it. Hostd opened it; it has no name, so no
// other process can open it, and it is gone with the shim. Buffer.mu guards all of it.
type disk struct {
	fd      int
	limit   uint64 // maximum of used
	end     int64  // size of the file
	live    int64  // bytes in all extents
	noHoles bool   // the file system cannot punch holes
}

// extent is a run of events in the file, as frames.
type extent struct {
	offset int64
	size   int
}

// used returns how much of the host's disk the file takes.
func (d *disk) used() uint64 {
	if d.noHoles {
		return uint64(d.end)
	}
	return uint64(d.live)
}

// full reports whether the next write may exceed the limit.
func (d *disk) full() bool { return d.used()+spillBatch > d.limit }

// put appends b; false if there is no space. The next write overwrites a partial one.
func (d *disk) put(b []byte) (extent, bool) {
	if d.used()+uint64(len(b)) > d.limit || d.end > math.MaxInt64-int64(len(b)) {
		return extent{}, false
	}
	x := extent{offset: d.end, size: len(b)}
	for at := x.offset; len(b) > 0; {
		n, err := unix.Pwrite(d.fd, b, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return extent{}, false
		}
		b, at = b[n:], at+int64(n)
	}
	d.end += int64(x.size)
	d.live += int64(x.size)
	return x, true
}

// get reads an extent.
func (d *disk) get(x extent) ([]byte, error) {
	b := make([]byte, x.size)
	for done := 0; done < len(b); {
		n, err := unix.Pread(d.fd, b[done:], x.offset+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("read the spool: %w", err)
		}
		done += n
	}
	return b, nil
}

// free frees the disk space of an extent.
func (d *disk) free(x extent) {
	if d.live -= int64(x.size); d.live == 0 {
		if unix.Ftruncate(d.fd, 0) == nil {
			d.end = 0
		}
		return
	}
	if !d.noHoles && punchHole(d.fd, x.offset, int64(x.size)) != nil {
		d.noHoles = true
	}
}

// The sizes at which events go to the disk.
const (
	spillBatch = 256 << 10 // bytes of one process, and of one write
	spillLeast = 4 << 10   // bytes of one process when many fill the memory
)

// spillAt returns how many bytes of a process may wait in memory while hostd stores
// nothing.
func (b *Buffer) spillAt() int {
	if uint64(b.bytes) > b.limits.SpoolTotal/4 {
		return spillLeast
	}
	return int(min(spillBatch, b.limits.SpoolProcess/2))
}

// spilling reports whether hostd is away or stores nothing, so that output goes to the disk. If
// hostd is merely slower than a process, the process waits instead.
func (b *Buffer) spilling() bool { return b.disk != nil && (b.wake == nil || b.stalled) }

// spill writes r's unsent events to the disk, if they are large enough and fit.
func (r *Record) spill() {
	b, q := r.b, &r.spool
	if r.memoryOnly || q.unsentBytes < b.spillAt() {
		return
	}
	was := q.bytes
	var buf []byte
	for loose := q.unsent(); len(loose) > 0; {
		n := 0
		for buf = buf[:0]; n < len(loose) && len(buf) < spillBatch; n++ {
			buf = loose[n].appendFrame(buf, r.token)
		}
		x, ok := b.disk.put(buf)
		if !ok {
			break
		}
		q.movedToDisk(n, x, b.free)
		loose = q.unsent()
	}
	b.bytes -= was - q.bytes
}

// loadFromDisk reads r's next extent back into memory. If it cannot be read, the whole record is
// lost: Config.Fail ends the shim, and the record reports that.
func (r *Record) loadFromDisk() bool {
	b, q := r.b, &r.spool
	x := q.extents[0]
	text, err := b.disk.get(x)
	var loaded []entry
	for err == nil && len(text) > 0 {
		var e entry
		if e, text, err = cutEntry(text); err == nil {
			loaded = append(loaded, e)
		}
	}
	if err != nil {
		b.fail(err)
		return false
	}
	was := q.bytes
	q.loaded(loaded)
	b.bytes += q.bytes - was
	b.disk.free(x)
	return true
}

// cutEntry parses the first event of an extent; its output shares the extent's memory.
func cutEntry(b []byte) (entry, []byte, error) {
	t, payload, rest, err := wire.Cut(b)
	if err != nil {
		return entry{}, nil, err
	}
	if t == wire.TypeOutput {
		e, err := outputEntry(payload)
		return e, rest, err
	}
	e, err := eventEntry(payload)
	return e, rest, err
}
