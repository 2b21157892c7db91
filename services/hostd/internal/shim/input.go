package shim

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxInput is how many bytes of input may wait for a process that does not read.
const maxInput = 4 << 20

// input is the writing end of a process's stdin. Shim.mu guards it.
type input struct {
	f       *os.File
	fd      int
	tty     bool    // f is the terminal, and not ours to close
	queue   []chunk // what did not fit into the pipe
	bytes   int     // of the queue
	offset  uint64  // bytes written
	writing bool    // a goroutine works on the queue
	eof     bool    // nothing is taken any more
}

// chunk is one command's input.
type chunk struct {
	rev     uint64
	command string
	data    []byte
	eof     bool
	try     *try // nil: it is not tried again
}

// write takes a command's input: into the pipe at once if it has room for all,
// else into the queue.
func (p *proc) write(f *wire.Stdin) {
	s, in := p.s, p.in
	if p.tried(f) {
		return
	}
	if p.over() { // hostd may not have noticed yet
		s.refuse(f.Rev, kind.NotFound, "the process has ended")
		return
	}
	if in != nil && in.bytes+len(f.Data) > maxInput {
		s.refuse(f.Rev, kind.Exhausted, "the process does not read its stdin")
		return
	}
	first := p.tries.note(f)
	refuse := func(text string) { s.conclude(first, refusal(f.Rev, text)) }
	switch {
	case in == nil:
		refuse("the process has no stdin")
		return
	case in.eof:
		refuse("stdin is closed")
		return
	case in.tty && f.EOF:
		refuse("cannot close the stdin of a terminal: send Ctrl+D (0x04) instead")
		return
	}
	in.eof = f.EOF
	c := chunk{rev: f.Rev, command: f.Command, data: f.Data, eof: f.EOF, try: first}
	if !in.writing {
		n, err := writeSome(in.fd, c.data)
		c.data = c.data[n:]
		in.offset += uint64(n)
		if len(c.data) == 0 || err != nil {
			p.wrote(&c, err)
			return
		}
	}
	s.taken(f.Rev)
	in.queue = append(in.queue, c)
	in.bytes += len(c.data)
	if !in.writing {
		in.writing = true
		go p.feed(in)
	}
}

// over reports whether the process has ended, also if its record has not.
func (p *proc) over() bool { return p.reaped || p.finished }

// unwritten says why an input that was taken was not written.
func (p *proc) unwritten(rev uint64) *wire.Reply {
	if p.over() {
		return &wire.Reply{Rev: rev, Kind: kind.NotFound, Error: "the process has ended"}
	}
	return refusal(rev, "stdin is closed")
}

// refusal says that stdin takes nothing.
func refusal(rev uint64, text string) *wire.Reply {
	return &wire.Reply{Rev: rev, Kind: kind.Precondition, Error: text}
}

// writeSome writes what a pipe has room for. No room is no error.
func writeSome(fd int, data []byte) (n int, err error) {
	for n < len(data) {
		m, err := unix.Write(fd, data[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if err == unix.EAGAIN {
				err = nil
			}
			return n, err
		}
		n += m
	}
	return n, nil
}

// feed writes the queue until it is empty.
func (p *proc) feed(in *input) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(in.queue) > 0 && in.f != nil {
		c, f := in.queue[0], in.f
		s.mu.Unlock()
		n, err := f.Write(c.data)
		s.mu.Lock()
		in.offset += uint64(n)
		if len(in.queue) == 0 {
			return // closed in the meantime, and all told
		}
		in.queue = in.queue[1:]
		in.bytes -= len(c.data)
		p.wrote(&c, err)
	}
	in.writing = false
}

// wrote tells what became of a command's input.
func (p *proc) wrote(c *chunk, err error) {
	s, in := p.s, p.in
	if err != nil {
		s.conclude(c.try, p.unwritten(c.rev))
		p.closeInput()
		return
	}
	p.push(entry{time: time.Now().UnixNano(), body: process.StdinAcked{Offset: in.offset, Command: c.command, EOF: c.eof}})
	p.tellSoon()
	s.conclude(c.try, &wire.Reply{Rev: c.rev, Offset: in.offset})
	if c.eof {
		p.closeInput()
	}
}

// ackDelay is how long an acknowledgement of input waits for the output that the
// input most often causes, an echo above all, to be stored in one message with
// it instead of before it. Whoever sent the input has its reply by then.
const ackDelay = 3 * time.Millisecond

// tellSoon is tell after a while, if nothing else tells before.
func (p *proc) tellSoon() {
	if p.soon == nil {
		p.soon = time.AfterFunc(ackDelay, func() {
			p.s.mu.Lock()
			defer p.s.mu.Unlock()
			p.tell()
		})
		return
	}
	p.soon.Reset(ackDelay)
}

// closeInput closes stdin and refuses what still waits for it.
func (p *proc) closeInput() {
	in := p.in
	if in == nil || in.f == nil {
		return
	}
	f := in.f
	in.f, in.fd, in.eof = nil, -1, true
	if !in.tty {
		f.Close() //nolint:errcheck // a pipe has nothing to flush
	}
	for _, c := range in.queue {
		p.s.conclude(c.try, p.unwritten(c.rev))
	}
	in.queue, in.bytes = nil, 0
}

// signal sends a signal to the process's group.
func (p *proc) signal(f *wire.Signal) {
	s := p.s
	if f.Signal < 1 || f.Signal > 64 {
		s.refuse(f.Rev, kind.Invalid, "no such signal")
		return
	}
	if p.pid == 0 || p.finished {
		s.refuse(f.Rev, kind.NotFound, "the process has ended")
		return
	}
	if err := p.kill(syscall.Signal(f.Signal)); err != nil {
		k, text := kind.Denied, "the process may not be signaled"
		if errors.Is(err, syscall.ESRCH) {
			k, text = kind.NotFound, "the process has ended"
		}
		s.refuse(f.Rev, k, text)
		return
	}
	if p.asked == nil {
		p.asked = make(map[int32]bool)
	}
	p.asked[f.Signal] = true
	seq := p.record(process.Signaled{Signal: f.Signal, Command: f.Command})
	s.reply(&wire.Reply{Rev: f.Rev, After: seq})
}

// resize sets the terminal's size; a process without one ignores it.
func (p *proc) resize(f *wire.Resize) {
	s := p.s
	if p.tty == nil || p.in.f == nil {
		s.reply(&wire.Reply{Rev: f.Rev})
		return
	}
	size := process.Size{Cols: min(f.Cols, process.MaxWindow), Rows: min(f.Rows, process.MaxWindow)}
	if err := setSize(p.in.fd, size); err != nil {
		s.refuse(f.Rev, kind.Internal, "the terminal could not be resized")
		return
	}
	seq := p.record(process.Resized{Size: size})
	s.reply(&wire.Reply{Rev: f.Rev, After: seq})
}
