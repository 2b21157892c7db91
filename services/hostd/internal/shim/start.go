package shim

import (
	"net"
	"syscall"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxStarts is how many processes of a user are started at a time. Each may be held up by
// what runs here already as that user, until its time is over.
const maxStarts = 16

// start spawns a process, once however often hostd asks. It does not wait until that is
// done: what is to be done to the process then waits behind it. A connection that was cut is
// not heard: the next one may have been told which processes there are, and may be that of
// another sandbox, to which this one is nothing.
func (c *session) start(f *wire.Start) error {
	spec, err := process.ParseSpec(f.Spec)
	if err != nil {
		return err
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if s.procs[f.Token] != nil {
		s.taken(f.Rev)
		return nil
	}
	p := &proc{s: s, token: f.Token, rev: f.Rev, spec: f.Spec, starting: true, watches: spec.Cmd == file.WatchCmd}
	p.pace.rate = s.limits.Rate
	p.spool.last = 1 // Accepted
	p.spool.resumed = true
	refusal := s.refusal()
	s.procs[f.Token] = p
	s.spawning++
	if refusal != nil {
		p.refused(refusal)
		return nil
	}
	go p.launch(&spec)
	return nil
}

// refusal says why nothing can be started right now.
func (s *Shim) refusal() error {
	switch {
	case s.ending:
		return errEnding()
	case len(s.procs) >= maxProcesses:
		return kind.New(kind.Exhausted, "start", "", "too many processes in the sandbox")
	}
	return nil
}

func errEnding() error { return kind.New(kind.Unavailable, "start", "", "the sandbox is ending") }

// launch spawns p, or says why it does not.
func (p *proc) launch(spec *process.Spec) {
	if refusal := p.spawnInTurn(spec); refusal != nil {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.refused(refusal)
	}
}

// spawnInTurn is spawn when it is p's turn among those of its user.
func (p *proc) spawnInTurn(spec *process.Spec) error {
	s := p.s
	who, err := s.lookup(spec.User)
	if err != nil {
		return err
	}
	turn := s.turn(who.uid)
	turn <- struct{}{}
	defer func() { <-turn }()
	s.mu.Lock()
	unwanted := s.ending || p.finished
	s.mu.Unlock()
	if unwanted {
		return errEnding() // of one that is forgotten nobody hears it
	}
	return p.spawn(spec, &who)
}

// turn has a value for each process of a user that is being started.
func (s *Shim) turn(uid int) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns[uid] == nil {
		s.turns[uid] = make(chan struct{}, maxStarts)
	}
	return s.turns[uid]
}

// refused says that p does not start. Shim.mu is held.
func (p *proc) refused(why error) {
	p.launched()
	p.fail(process.Failed{Kind: uint32(kind.Of(why)), Message: kind.Message(why)})
	p.catchUp()
}

// launched says that it is known what became of a start, before anything else is said of p:
// hostd need not ask for it again, when p may be forgotten. Shim.mu is held.
func (p *proc) launched() {
	s := p.s
	s.spawning--
	p.starting = false
	if p.rev > 0 { // else nobody asked for it, or another sandbox did
		s.taken(p.rev)
	}
}

// catchUp does what waited for the start. Shim.mu is held.
func (p *proc) catchUp() {
	commands := p.waiting
	p.waiting, p.waits = nil, 0
	for _, c := range commands {
		p.s.apply(c)
	}
}

// child is one that the forker made. Shim.mu guards it.
type child struct {
	pid    int
	ended  bool // before its process was known
	status syscall.WaitStatus
}
