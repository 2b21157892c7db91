package shim

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
)

const (
	handOverSize = 16 << 10 // a longer read gives its block to the spool instead of a copy
	smallGrow    = 4 << 10  // an event that grows beyond this gets a whole block
	readsAtOnce  = 8        // reads after which output is sent even if there may be more
	ttySlack     = 64 << 10

	minSpareBlocks = 4 // kept when nothing is spooled
	maxSpareBlocks = 64
)

// stream is the reading end of one pipe or terminal.
type stream struct {
	p  *proc
	id process.Stream
	f  *os.File
	rc syscall.RawConn

	mu           sync.Mutex // held while reading, so that output is appended in order; taken before Shim.mu
	fd           int
	block        *[blockSize]byte // buffer for reading; nil: none
	offset       uint64           // of the next byte
	full         bool             // stopped reading for lack of space
	eof          bool
	hungUp       bool // the last read found the other end of the terminal closed
	exited       bool // the process was waited for
	drained      bool // everything that the process left was read
	unreadAtExit int  // bytes left unread at its exit
	widened      bool // the pipe was made larger
	reads        int  // since output was last queued for sending
	coalescer    coalescer
}

// run reads until the stream's end.
func (st *stream) run() {
	for {
		st.p.s.waitReadable(st.p)
		err := st.rc.Read(func(uintptr) bool { st.coalesce(); return st.pump() })
		if err != nil || st.ended() {
			break
		}
	}
	st.close()
}

func (st *stream) ended() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.eof
}

func (st *stream) close() {
	st.mu.Lock()
	st.fd = -1
	s := st.p.s
	s.mu.Lock()
	st.markEOF()
	st.mu.Unlock()
	if st.p.tty == st.f {
		st.p.tty = nil
		st.p.closeInput()
	}
	s.mu.Unlock()
	st.f.Close() //nolint:errcheck // it was only read from
}

// pump reads the available output. It reports false if the stream is open but empty: wait
// until it is readable.
func (st *stream) pump() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.read() {
	}
	return st.full || st.eof
}

// processExited is called after the process was waited for. It reads what the process left, if there
// is space, so that Exited comes after it and soon.
func (st *stream) processExited() {
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
	case st.id == process.PTY:
		st.unreadAtExit += ttySlack // bytes in transit inside the terminal are not counted
	case n == 0 && err == nil: // it needs no space in the spool, which other processes may fill
		st.p.s.mu.Lock()
		st.markDrained()
		st.p.s.mu.Unlock()
	}
	for !st.drained && st.read() {
	}
}

// read reads once and reports whether to continue.
func (st *stream) read() bool {
	s := st.p.s
	if st.eof || !st.prepare() {
		return false
	}
	n, err := unix.Read(st.fd, st.block[:])
	switch {
	case err == unix.EINTR:
		return true
	case err == unix.EAGAIN:
		st.coalescer.empty(time.Now())
		s.mu.Lock()
		st.releaseBlock()
		if st.exited {
			st.markDrained()
		}
		s.mu.Unlock()
		return false
	case err == unix.EIO && !st.hungUp:
		// A terminal whose other end is closed. The kernel may return EIO although the last
		// output arrived between its two checks: after this read nothing follows.
		st.hungUp = true
		return true
	case n <= 0 || err != nil:
		s.mu.Lock()
		st.markEOF()
		s.mu.Unlock()
		return false
	}
	st.hungUp = false
	st.coalescer.got += n
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (st *stream) prepare() bool {
	if st.block != nil {
		return true
	}
	s := st.p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.full = !s.mayRead(st.p); st.full {
		st.p.queueSend()
		return false
	}
	st.block = s.getBlock()
	return true
}

// releaseBlock releases the block: there may be nothing to read for a long time.
func (st *stream) releaseBlock() {
	if st.block != nil {
		st.p.s.putBlock(st.block)
		st.block = nil
	}
	st.reads = 0
	st.p.queueSend()
}

// widen enlarges a busy pipe, so that one read returns more.
func (st *stream) widen(n int) {
	st.widened = true
	if st.id != process.PTY {
		setPipeSize(st.fd, n)
	}
}

// markDrained records that no output is missing before Exited.
func (st *stream) markDrained() {
	if !st.drained {
		st.drained = true
		st.p.undrained--
		st.p.settle()
	}
}

func (st *stream) markEOF() {
	if st.eof {
		return
	}
	st.eof = true
	st.releaseBlock()
	st.p.open--
	if !st.drained {
		st.drained = true
		st.p.undrained--
	}
	st.p.settle()
}

// take records the first n bytes of the block. It queues them for sending when no more is
// available, or when there is enough.
func (st *stream) take(n int) {
	p, s := st.p, st.p.s
	p.wroteAt = time.Now()
	if p.finished {
		return
	}
	p.pace.took(p.wroteAt, n)
	s.pace.took(p.wroteAt, n)
	if n = p.withinQuota(st.id, n); n > 0 {
		st.append(n)
		st.offset += uint64(n)
		p.recorded += uint64(n)
		s.recorded += uint64(n)
	}
	if st.reads++; st.reads >= readsAtOnce || n >= handOverSize {
		st.reads = 0
		p.queueSend()
	}
	if st.block != nil && !s.mayRead(p) {
		s.putBlock(st.block)
		st.block = nil
	}
}

// append adds the first n bytes of the block to the spool: to the last event if that was
// not sent yet and belongs to the same stream, else as a new event.
func (st *stream) append(n int) {
	p, s := st.p, st.p.s
	data := st.block[:n]
	if e := p.spool.tail(); e != nil && e.stream == st.id && len(e.data)+n <= blockSize {
		was := e.cost()
		e.data = s.grow(e.data, n)
		e.data = append(e.data, data...)
		p.spool.addBytes(e.cost() - was)
		s.bytes += e.cost() - was
		return
	}
	e := entry{time: p.wroteAt.UnixNano(), stream: st.id, offset: st.offset}
	if n >= handOverSize {
		e.data, st.block = data, nil // prepare gets another
	} else {
		e.data = append(make([]byte, 0, n), data...)
	}
	p.push(e)
}

// grow makes space in b for n more bytes.
func (s *Shim) grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) || len(b)+n <= smallGrow {
		return b
	}
	block := s.getBlock()
	return block[:copy(block[:], b)]
}

// getBlock returns memory for output. It is not a sync.Pool, because the frequent
// collections of a small heap would empty that each time.
func (s *Shim) getBlock() *[blockSize]byte {
	if n := len(s.blocks); n > 0 {
		b := s.blocks[n-1]
		s.blocks = s.blocks[:n-1]
		return b
	}
	return new([blockSize]byte)
}

// putBlock takes a block back and keeps about as many as are in use.
func (s *Shim) putBlock(b *[blockSize]byte) {
	keep := min(minSpareBlocks+s.bytes/blockSize, maxSpareBlocks)
	if len(s.blocks) < keep {
		s.blocks = append(s.blocks, b)
		return
	}
	clear(s.blocks[keep:])
	s.blocks = s.blocks[:keep]
}

// free takes back the memory of an event's output.
func (s *Shim) free(b []byte) {
	if cap(b) == blockSize {
		s.putBlock((*[blockSize]byte)(b[:blockSize]))
	}
}

// withinQuota returns how many of n bytes may be recorded and counts the rest as dropped.
func (p *proc) withinQuota(id process.Stream, n int) int {
	l := &p.s.limits
	keep := min(quotaLeft(l.Quota, p.recorded, n), quotaLeft(l.QuotaTotal, p.s.recorded, n))
	if keep == n {
		return n
	}
	p.drops(id).n += uint64(n - keep)
	if keep == 0 {
		p.recordDropped(false)
	}
	return keep
}

// drops returns the counter of a stream.
func (p *proc) drops(id process.Stream) *drops {
	if p.dropped == nil {
		p.dropped = make(map[process.Stream]*drops)
	}
	if p.dropped[id] == nil {
		p.dropped[id] = &drops{}
	}
	return p.dropped[id]
}

// quotaLeft returns how many of n bytes a quota allows after used bytes.
func quotaLeft(quota, used uint64, n int) int {
	if quota == 0 {
		return n
	}
	return int(min(uint64(n), quota-min(quota, used)))
}

// recordDropped records how much was dropped: at first, at each doubling, and at the end.
func (p *proc) recordDropped(last bool) {
	for _, id := range []process.Stream{process.Stdout, process.Stderr, process.PTY} {
		if d := p.dropped[id]; d != nil && (d.n >= 2*d.recorded && !last || last && d.n > d.recorded) {
			d.recorded = d.n
			p.record(process.Truncated{Stream: id, Dropped: d.n})
		}
	}
}
