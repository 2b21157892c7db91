package session

import (
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// ack sends the shim the last stored seq of a process, up to which it may drop events, and
// flushes if that frees much of the process's window, for which a busy process waits. The next
// connection starts with the full state again.
func (ss *Session) ack(m wire.Mark, freed int) {
	conn := ss.Conn()
	if conn == nil {
		return
	}
	frame := func(dst []byte) []byte { return wire.AppendMark(dst, wire.TypeAck, m) }
	if freed < promptAck {
		conn.SendSoon(frame)
		return
	}
	conn.Send(frame)
}

// promptAck is how many acked bytes of output make an ack urgent.
const promptAck = wire.WindowProcess / 32

// send sends a frame if there is a connection.
func (ss *Session) send(f func([]byte) []byte) {
	if conn := ss.Conn(); conn != nil {
		conn.Send(f)
	}
}

// Conn returns the current connection; nil without one.
func (ss *Session) Conn() *link.Conn {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.conn
}

// read handles messages from the shim until the connection ends.
func (ss *Session) read(conn *link.Conn) error {
	for {
		m, err := conn.Next()
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.TypeEvent:
			err = ss.event(&m)
		case wire.TypeReply:
			ss.reply(&m.Reply)
		case wire.TypeTaken:
			ss.accepted(m.Rev)
		case wire.TypeEnded:
			ending := ss.cfg.Ending()
			ss.mu.Lock()
			ss.ended = ending
			ss.ifDrained()
			ss.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
}

func (ss *Session) event(m *link.Message) error {
	ss.mu.Lock()
	p := ss.procs[m.Token]
	_, forgotten := ss.forgotten[m.Token]
	ss.mu.Unlock()
	if forgotten {
		ss.h.pool.Put(m.Mem)
		return nil
	}
	if p == nil {
		return hostile("event of the unknown process %q", m.Token)
	}
	return p.inbox.take(m)
}

// command sends a command to the shim, on each new connection again until it is accepted.
func (ss *Session) command(c command.Command, p *proc, frame []byte) {
	if in, ok := c.Body.(command.Stdin); ok {
		c.Body = command.Stdin{EOF: in.EOF} // the frame has the data
	}
	ss.mu.Lock()
	if ss.closed {
		ss.mu.Unlock()
		ss.h.cfg.Commands.Refuse(c, kind.New(kind.NotFound, "command", c.ID, "the process has ended"))
		return
	}
	ss.pending[c.Rev] = &pending{cmd: c, frame: frame, proc: p}
	conn := ss.conn
	ss.mu.Unlock()
	if conn != nil {
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
}

// accepted handles the shim's Taken: the command need not be sent again.
func (ss *Session) accepted(rev uint64) {
	ss.mu.Lock()
	c := ss.pending[rev]
	if c == nil {
		ss.mu.Unlock()
		return
	}
	c.taken, c.frame = true, nil
	_, start := c.cmd.Body.(command.Start)
	if start {
		delete(ss.pending, rev)
	}
	ss.mu.Unlock()
	if start {
		c.proc.setTaken() // the cursor waits until its first event is stored
		return
	}
	ss.h.cfg.Commands.End(rev)
}

// reply handles the shim's reply to a command.
func (ss *Session) reply(r *wire.Reply) {
	ss.mu.Lock()
	c := ss.pending[r.Rev]
	delete(ss.pending, r.Rev)
	ss.mu.Unlock()
	if c == nil {
		return
	}
	ss.h.cfg.Commands.End(r.Rev)
	answer := command.Reply{Offset: r.Offset}
	if r.Error != "" {
		answer.Err = kind.New(r.Kind, "command", c.cmd.ID, r.Error)
	}
	if c.proc != nil && r.After > 0 {
		c.proc.replies.replyAfter(r.After, c.cmd, answer)
		return
	}
	ss.h.cfg.Commands.Answer(c.cmd, answer)
}

// Shut disconnects and refuses all commands, pending and later ones.
func (ss *Session) Shut() {
	ss.mu.Lock()
	ss.closed = true
	pending := ss.pending
	ss.pending = nil
	conn := ss.conn
	ss.conn = nil
	ss.cfg.Network.Detach(conn)
	ss.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	ss.markReady()
	for _, c := range pending {
		if _, start := c.cmd.Body.(command.Start); !start {
			ss.h.cfg.Commands.Refuse(c.cmd, kind.New(kind.NotFound, "command", c.cmd.ID, "the process has ended"))
		}
	}
	ss.queue.openUp() // they are refused
}
