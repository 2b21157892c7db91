package output

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/redact"
)

const (
	handOverSize = 16 << 10 // a longer read gives its block to the spool instead of a copy
	readsAtOnce  = 8        // reads after which output is sent even if there may be more
	ttySlack     = 64 << 10
)

// Owner is the process of a stream. Its methods may be called concurrently, by different streams.
type Owner interface {
	// Drained is called once, as soon as everything that the ended process left was read.
	Drained()
	// EOF is called once, when nothing more can be read, with drained if Drained was called.
	EOF(drained bool)
	// Closing is called before the file is closed.
	Closing(f *os.File)
}

// End is the reading end of a pipe or terminal.
type End struct {
	ID process.Stream
	F  *os.File
	RC syscall.RawConn
	FD int
}

// Stream reads one pipe or terminal into a record.
type Stream struct {
	r     *Record
	owner Owner
	end   End

	mu           sync.Mutex       // held while reading, so that output is appended in order; taken before Buffer.mu
	fd           int              // -1: closed
	block        *[blockSize]byte // buffer for reading; nil: none
	full         bool             // stopped reading for lack of space
	eof          bool
	hungUp       bool           // the last read found the other end of the terminal closed
	exited       bool           // the process was waited for
	drained      bool           // everything that the process left was read
	unreadAtExit int            // bytes left unread at its exit
	widened      bool           // the pipe was made larger
	redactor     *redact.Stream // nil: output is recorded as it is
	clean        []byte         // reused buffer for the redactor's output
	reads        int            // since output was last queued for sending
	coalescer    coalescer
}

// NewStream returns a stream that Run reads into the record.
func (r *Record) NewStream(end End, owner Owner) *Stream {
	st := &Stream{r: r, owner: owner, end: end, fd: end.FD, coalescer: coalescer{wait: r.b.coalesce}}
	if r.redact != nil {
		st.redactor = r.redact.Stream()
	}
	return st
}

// Run reads until the stream's end, and closes its file.
func (st *Stream) Run() {
	for {
		st.r.b.waitReadable(st.r)
		err := st.end.RC.Read(func(uintptr) bool { st.coalesce(); return st.pump() })
		if err != nil || st.ended() {
			break
		}
	}
	st.close()
}

func (st *Stream) ended() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.eof
}

func (st *Stream) close() {
	st.mu.Lock()
	st.fd = -1
	st.markEOF()
	st.mu.Unlock()
	st.owner.Closing(st.end.F)
	st.end.F.Close()
}

// pump reads the available output. It reports false if the stream is open but empty: wait
// until it is readable.
func (st *Stream) pump() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.read() {
	}
	return st.full || st.eof
}

// ProcessExited is called after the process was waited for. It reads what the process left, if
// there is space, so that Exited comes after it and soon.
func (st *Stream) ProcessExited() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.eof {
		return
	}
	st.exited = true
	n, err := unreadBytes(st.fd)
	if err == nil {
		st.unreadAtExit = n
	}
	switch {
	case st.end.ID == process.PTY:
		st.unreadAtExit += ttySlack // bytes in transit inside the terminal are not counted
	case n == 0 && err == nil: // it needs no space in the spool, which other processes may fill
		st.markDrained()
	}
	for !st.drained && st.read() {
	}
}

// read reads once and reports whether to continue.
func (st *Stream) read() bool {
	if st.eof || !st.prepare() {
		return false
	}
	n, err := unix.Read(st.fd, st.block[:])
	switch {
	case err == unix.EINTR:
		return true
	case err == unix.EAGAIN:
		st.coalescer.empty(time.Now())
		st.releaseBlock()
		if st.exited {
			st.markDrained()
		}
		return false
	case err == unix.EIO && !st.hungUp:
		// A terminal whose other end is closed. The kernel may return EIO although the last
		// output arrived between its two checks: after this read nothing follows.
		st.hungUp = true
		return true
	case n <= 0 || err != nil:
		st.markEOF()
		return false
	}
	st.hungUp = false
	st.coalescer.got += n
	st.take(n)
	if n == blockSize && !st.widened {
		st.widen(4 * blockSize)
	}
	if st.exited {
		if st.unreadAtExit -= n; st.unreadAtExit <= 0 {
			st.markDrained()
		}
	}
	return true
}

// prepare ensures a block to read into, and space in the spool for what will be read.
func (st *Stream) prepare() bool {
	if st.block != nil {
		return true
	}
	b := st.r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if st.full = !b.mayRead(st.r); st.full {
		b.enqueue(st.r)
		return false
	}
	st.block = b.getBlock()
	return true
}

// releaseBlock releases the block: there may be nothing to read for a long time.
func (st *Stream) releaseBlock() {
	b := st.r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if st.block != nil {
		b.putBlock(st.block)
		st.block = nil
	}
	st.reads = 0
	b.enqueue(st.r)
}

// widen enlarges a busy pipe, so that one read returns more.
func (st *Stream) widen(n int) {
	st.widened = true
	if st.end.ID != process.PTY {
		setPipeSize(st.fd, n)
	}
}

// markDrained reports that no output is missing before Exited.
func (st *Stream) markDrained() {
	if !st.drained {
		st.drained = true
		st.owner.Drained()
	}
}

func (st *Stream) markEOF() {
	if st.eof {
		return
	}
	st.eof = true
	st.recordHeld()
	st.releaseBlock()
	drained := st.drained
	st.drained = true
	st.owner.EOF(drained)
}

// take records the first n bytes of the block. It queues them for sending when no more is
// available, or when there is enough.
func (st *Stream) take(n int) {
	r, b, id := st.r, st.r.b, st.end.ID
	var clean, held []byte
	if st.redactor != nil { // the search may take long, and other processes must not wait for it
		clean = st.redactor.Append(st.clean[:0], st.block[:n])
		held = st.redactor.AppendRest(nil)
		st.clean = clean
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r.wroteAt = time.Now()
	if r.closed {
		return
	}
	r.pace.took(r.wroteAt, n)
	b.pace.took(r.wroteAt, n)
	if st.redactor == nil {
		st.append(r.withinQuota(id, n))
	} else {
		r.held[id] = held
		r.recordOutput(id, clean)
	}
	if st.reads++; st.reads >= readsAtOnce || n >= handOverSize {
		st.reads = 0
		b.enqueue(r)
	}
	if st.block != nil && !b.mayRead(r) {
		b.putBlock(st.block)
		st.block = nil
	}
}

// append records the first n bytes of the block, or the block itself.
func (st *Stream) append(n int) {
	if n >= handOverSize && !st.r.extends(st.end.ID, n) {
		st.r.pushOutput(st.end.ID, st.block[:n])
		st.block = nil // prepare gets another
		return
	}
	st.r.appendOutput(st.end.ID, st.block[:n])
}
