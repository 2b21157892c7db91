package shim

import (
	"net"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxStarts is the maximum number of processes of one user that start concurrently. Other
// processes of that user can hold up a start until its timeout.
const maxStarts = 16

// start spawns a process, once however often hostd repeats the frame. It does not wait for
// the spawn; later commands for the process queue behind it. A closed connection is
// ignored: the next one may already have received the list of processes, and may belong to
// another sandbox.
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
	p := &proc{s: s, token: f.Token, rev: f.Rev, spec: f.Spec, starting: true, isWatch: spec.Cmd == file.WatchCmd}
	p.pace.rate = s.limits.Rate
	p.spool.last = 1 // Accepted
	p.spool.resumed = true
	refusal := s.startError()
	s.procs[f.Token] = p
	s.spawning++
	if refusal != nil {
		p.failStart(refusal)
		return nil
	}
	go p.launch(&spec)
	return nil
}

// startError returns why nothing can be started at the moment.
func (s *Shim) startError() error {
	switch {
	case s.ending:
		return errEnding()
	case len(s.procs) >= maxProcesses:
		return kind.New(kind.Exhausted, "start", "", "too many processes in the sandbox")
	}
	return nil
}

func errEnding() error { return kind.New(kind.Unavailable, "start", "", "the sandbox is ending") }

// launch spawns p, or records why it cannot start.
func (p *proc) launch(spec *process.Spec) {
	if refusal := p.spawnInSlot(spec); refusal != nil {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.failStart(refusal)
	}
}

// spawnInSlot waits for a start slot of p's user and spawns p.
func (p *proc) spawnInSlot(spec *process.Spec) error {
	s := p.s
	acct, err := s.users.Lookup(spec.User)
	if err != nil {
		return err
	}
	turn := s.userSlots(acct.UID)
	turn <- struct{}{}
	defer func() { <-turn }()
	s.mu.Lock()
	unwanted := s.ending || p.finished
	s.mu.Unlock()
	if unwanted {
		return errEnding() // for a forgotten process, this is not recorded
	}
	return p.spawn(spec, &acct)
}

// userSlots returns the start slots of a user: one value for each start in progress.
func (s *Shim) userSlots(uid int) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.startSlots[uid] == nil {
		s.startSlots[uid] = make(chan struct{}, maxStarts)
	}
	return s.startSlots[uid]
}

// failStart records that p does not start. Shim.mu is held.
func (p *proc) failStart(why error) {
	p.startResolved()
	p.fail(process.Failed{Kind: uint32(kind.Of(why)), Message: kind.Message(why)})
	p.runPending()
}

// startResolved records that the outcome of a start is known, before any other event of p: hostd
// need not repeat the start, and p may be forgotten. Shim.mu is held.
func (p *proc) startResolved() {
	s := p.s
	s.spawning--
	p.starting = false
	if p.rev > 0 { // else hostd did not request it, or another sandbox did
		s.taken(p.rev)
	}
}

// runPending applies the commands that waited for the start. Shim.mu is held.
func (p *proc) runPending() {
	commands := p.pending
	p.pending, p.pendingBytes = nil, 0
	for _, c := range commands {
		p.s.apply(c)
	}
}
