package output

import (
	"cmp"
	"sync"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Config configures a Buffer.
type Config struct {
	Coalesce time.Duration // how long output of a busy writer may collect in its pipe; 0: it is read at once

	// Fail is called, at least once and without waiting for anything, when spooled events
	// cannot be read back.
	Fail func(error)
}

// The defaults of wire.Limits.
const (
	defaultSpoolProcess = 4 << 20
	defaultSpoolTotal   = 64 << 20
)

// Buffer has the records of all processes. It is safe for concurrent use.
type Buffer struct {
	coalesce time.Duration
	fail     func(error)

	mu           sync.Mutex // guards all below and, with what a Stream guards, all of Record
	limits       wire.Limits
	records      map[*Record]struct{} // those with events to come, or to be stored
	bytes        int                  // in memory, of all spools
	disk         *disk                // nil: the spools are in memory only
	ackedAt      time.Time            // time of the last acknowledgement or connection
	stalled      bool                 // hostd is connected but stores nothing
	blocked      int                  // streams that wait for space
	checkPending bool                 // a call of checkBlocked is scheduled
	pace         pace                 // of all output
	recorded     uint64               // bytes of output
	blocks       []*[blockSize]byte
	readable     sync.Cond // signaled when a blocked stream may be able to read
	wake         func()    // wakes the connection; nil: hostd is not connected
	ready        []*Record // records with something to send, each once
	flight       int       // bytes sent but not acknowledged, of all records
}

// New returns an empty buffer with the default limits.
func New(cfg Config) *Buffer {
	b := &Buffer{coalesce: cfg.Coalesce, fail: cfg.Fail, records: make(map[*Record]struct{})}
	b.readable.L = &b.mu
	b.SetLimits(wire.Limits{})
	return b
}

// SetLimits applies l, with defaults for zero fields.
func (b *Buffer) SetLimits(l wire.Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.SpoolProcess = cmp.Or(l.SpoolProcess, defaultSpoolProcess)
	l.SpoolTotal = cmp.Or(l.SpoolTotal, defaultSpoolTotal)
	b.limits = l
	b.setPace()
	if b.disk != nil {
		b.disk.limit = l.Disk
	}
	b.readable.Broadcast()
}

// HasFile reports whether SetFile was called.
func (b *Buffer) HasFile() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.disk != nil
}

// SetFile passes the descriptor of the spool file. SetLimits sets how much of it is used.
func (b *Buffer) SetFile(fd int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disk = &disk{fd: fd}
}

// Connect begins a new connection of hostd, which has nothing of a record until Resume, and
// calls wake when there is something to Collect. wake must not block, nor call the buffer.
func (b *Buffer) Connect(wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake, b.ready, b.flight = wake, nil, 0
	for r := range b.records {
		r.spool.rewind()
		r.queued = false
	}
	b.ackedAt, b.stalled = time.Now(), false
}

// Disconnect ends the connection of hostd.
func (b *Buffer) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake, b.ready = nil, nil
	b.makeSpace()
}

// freeWindow removes n bytes from flight. If that opens the connection's window, all records
// that waited for it are queued again. mu is held.
func (b *Buffer) freeWindow(n int) {
	full := b.flight >= wire.WindowConn
	if b.flight -= n; !full || b.flight >= wire.WindowConn {
		return
	}
	for r := range b.records {
		b.enqueue(r)
	}
}

// enqueue queues r if it has something that may be sent, and wakes the connection. mu is held.
func (b *Buffer) enqueue(r *Record) {
	if b.maySend(r) {
		b.queue(r)
		b.wake()
	}
}

// maySend reports whether r has something that may be sent, and is not queued.
func (b *Buffer) maySend(r *Record) bool {
	return b.wake != nil && !r.queued && r.spool.sendable() && b.flight < wire.WindowConn
}

func (b *Buffer) queue(r *Record) {
	r.queued = true
	b.ready = append(b.ready, r)
}
