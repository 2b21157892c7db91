package procs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxInput is the maximum number of bytes of input that wait for a process.
const maxInput = 4 << 20

// input is the write end of a process's stdin. Table.mu guards it.
type input struct {
	f       *os.File
	fd      int
	tty     bool    // f is the terminal, which is closed elsewhere
	queue   []chunk // what did not fit into the pipe
	bytes   int     // of the queue
	offset  uint64  // bytes written
	writing bool    // a goroutine writes the queue
	eof     bool    // no more input is accepted
}

// chunk is one command's input.
type chunk struct {
	rev     uint64
	command string
	data    []byte
	eof     bool
	attempt *inputAttempt // nil: the command has no key
}

// write writes a command's input: into the pipe at once if all of it fits, else into the
// queue.
func (p *proc) write(f *wire.Stdin) {
	t, in := p.t, p.in
	if p.isDuplicate(f) {
		return
	}
	if p.hasEnded() { // hostd may not have the event yet
		t.replies.refuse(f.Rev, kind.NotFound, "the process has ended")
		return
	}
	if in != nil && in.bytes+len(f.Data) > maxInput {
		t.replies.refuse(f.Rev, kind.Exhausted, "the process does not read its stdin")
		return
	}
	first := p.dedup.register(f)
	refuse := func(text string) { t.replies.input(first, inputRefusal(f.Rev, text)) }
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
	c := chunk{rev: f.Rev, command: f.Command, data: f.Data, eof: f.EOF, attempt: first}
	if !in.writing {
		n, err := writeSome(in.fd, c.data)
		c.data = c.data[n:]
		in.offset += uint64(n)
		if len(c.data) == 0 || err != nil {
			p.wrote(&c, err)
			return
		}
	}
	t.replies.taken(f.Rev)
	in.queue = append(in.queue, c)
	in.bytes += len(c.data)
	if !in.writing {
		in.writing = true
		go p.feed(in)
	}
}

// hasEnded reports whether the process has ended, even if its record has not.
func (p *proc) hasEnded() bool { return p.reaped || p.finished }

// inputError returns the reply for input that was accepted but not written.
func (p *proc) inputError(rev uint64) *wire.Reply {
	if p.hasEnded() {
		return &wire.Reply{Rev: rev, Kind: kind.NotFound, Error: "the process has ended"}
	}
	return inputRefusal(rev, "stdin is closed")
}

// inputRefusal returns the reply for a stdin that accepts no input.
func inputRefusal(rev uint64, text string) *wire.Reply {
	return &wire.Reply{Rev: rev, Kind: kind.Precondition, Error: text}
}

// writeSome writes as much as fits into a pipe. A full pipe is not an error.
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
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(in.queue) > 0 && in.f != nil {
		c, f := in.queue[0], in.f
		t.mu.Unlock()
		n, err := f.Write(c.data)
		t.mu.Lock()
		in.offset += uint64(n)
		if len(in.queue) == 0 {
			return // closed in the meantime, and every command has its reply
		}
		in.queue = in.queue[1:]
		in.bytes -= len(c.data)
		p.wrote(&c, err)
	}
	in.writing = false
}

// wrote records and reports the outcome of a command's input.
func (p *proc) wrote(c *chunk, err error) {
	t, in := p.t, p.in
	if err != nil {
		t.replies.input(c.attempt, p.inputError(c.rev))
		p.closeInput()
		return
	}
	// The event waits for the output that input usually causes, above all an echo. So does the
	// reply of a terminal, but not as long; other input has its reply at once.
	p.rec.AppendSoon(process.StdinAcked{Offset: in.offset, Command: c.command, EOF: c.eof})
	reply := &wire.Reply{Rev: c.rev, Offset: in.offset}
	if in.tty {
		t.replies.typed(c.attempt, reply)
	} else {
		t.replies.input(c.attempt, reply)
	}
	if c.eof {
		p.closeInput()
	}
}

// closeInput closes stdin and refuses the input that still waits.
func (p *proc) closeInput() {
	in := p.in
	if in == nil || in.f == nil {
		return
	}
	f := in.f
	in.f, in.fd, in.eof = nil, -1, true
	if !in.tty {
		f.Close()
	}
	for _, c := range in.queue {
		p.t.replies.input(c.attempt, p.inputError(c.rev))
	}
	in.queue, in.bytes = nil, 0
}

// signal sends a signal to the process group.
func (p *proc) signal(f *wire.Signal) {
	t := p.t
	if f.Signal < 1 || f.Signal > 64 {
		t.replies.refuse(f.Rev, kind.Invalid, "no such signal")
		return
	}
	if p.pid == 0 || p.finished {
		t.replies.refuse(f.Rev, kind.NotFound, "the process has ended")
		return
	}
	if err := p.kill(syscall.Signal(f.Signal)); err != nil {
		k, text := kind.Denied, "the process may not be signaled"
		if errors.Is(err, syscall.ESRCH) {
			k, text = kind.NotFound, "the process has ended"
		}
		t.replies.refuse(f.Rev, k, text)
		return
	}
	if p.requested == nil {
		p.requested = make(map[int32]bool)
	}
	p.requested[f.Signal] = true
	seq := p.rec.Append(process.Signaled{Signal: f.Signal, Command: f.Command})
	t.replies.reply(&wire.Reply{Rev: f.Rev, After: seq})
}

// resize sets the terminal's size; without a terminal it does nothing.
func (p *proc) resize(f *wire.Resize) {
	t := p.t
	if p.tty == nil || p.in.f == nil {
		t.replies.reply(&wire.Reply{Rev: f.Rev})
		return
	}
	size := process.Size{Cols: min(f.Cols, process.MaxWindow), Rows: min(f.Rows, process.MaxWindow)}
	if err := setSize(p.in.fd, size); err != nil {
		t.replies.refuse(f.Rev, kind.Internal, "the terminal could not be resized")
		return
	}
	seq := p.rec.Append(process.Resized{Size: size})
	t.replies.reply(&wire.Reply{Rev: f.Rev, After: seq})
}
