package shim

import (
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxStarts is how many processes are started at a time. Each may be held up by what
// runs here already, until its time is over.
const maxStarts = 16

// start spawns a process, once however often hostd asks. It does not wait until that is
// done: what is to be done to the process then waits behind it.
func (s *Shim) start(f *wire.Start) error {
	spec, err := process.ParseSpec(f.Spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.procs[f.Token] != nil {
		s.taken(f.Rev)
		return nil
	}
	p := &proc{s: s, token: f.Token, rev: f.Rev, spec: f.Spec, starting: true}
	p.pace.rate = s.limits.Rate
	p.spool.last = 1 // Accepted
	p.spool.resumed = true
	refusal := s.refusal()
	s.procs[f.Token] = p
	s.spawning++
	if refusal != nil {
		s.launched(p, f.Rev, refusal)
		return nil
	}
	go s.launch(p, &spec, f.Rev)
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

// launch spawns p when it is its turn.
func (s *Shim) launch(p *proc, spec *process.Spec, rev uint64) {
	s.starts <- struct{}{}
	defer func() { <-s.starts }()
	s.mu.Lock()
	unwanted := s.ending || p.finished
	s.mu.Unlock()
	refusal := errEnding() // of one that is forgotten nobody hears it
	if !unwanted {
		refusal = p.spawn(spec)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launched(p, rev, refusal)
}

// launched says what became of a start, and does what waited for that. Shim.mu is held.
func (s *Shim) launched(p *proc, rev uint64, refusal error) {
	s.spawning--
	p.starting = false
	if p.rev == rev { // else it is another sandbox's now, which did not ask for it
		s.taken(rev)
	}
	if refusal != nil {
		p.fail(process.Failed{Kind: uint32(kind.Of(refusal)), Message: kind.Message(refusal)})
	}
	commands := p.waiting
	p.waiting, p.waits = nil, 0
	for _, c := range commands {
		c.do()
	}
}

// child is one that the forker made. Shim.mu guards it.
type child struct {
	pid    int
	ended  bool // before its process was known
	status syscall.WaitStatus
}
