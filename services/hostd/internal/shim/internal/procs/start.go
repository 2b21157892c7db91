package procs

import (
	"slices"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/redact"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// maxProcesses is the maximum number of processes that run or have unacknowledged events.
const maxProcesses = 16 << 10

// MaxStarts is the maximum number of processes of one user that start concurrently. Other
// processes of that user can hold up a start until its timeout.
const MaxStarts = 16

// Start starts a process, once however often hostd repeats the frame. It does not wait for
// the spawn; later commands for the process queue behind it.
func (t *Table) Start(f *wire.Start) error {
	spec, err := process.ParseSpec(f.Spec)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.procs[f.Token] != nil {
		t.replies.taken(f.Rev)
		return nil
	}
	p := &proc{t: t, token: f.Token, rec: t.cfg.Output.NewRecord(f.Token), rev: f.Rev, spec: f.Spec, starting: true, untilEOF: spec.UntilEOF, isWatch: spec.Cmd == file.WatchCmd}
	refusal := t.startError()
	if refusal == nil {
		refusal = t.restrict(p.rec, &spec)
	}
	t.procs[f.Token] = p
	t.spawning++
	if refusal != nil {
		p.failStart(refusal)
		return nil
	}
	go p.launch(&spec)
	return nil
}

// restrict applies to a record what its process's output is restricted by. The patterns of a sandbox
// are compiled once.
func (t *Table) restrict(r *output.Record, spec *process.Spec) error {
	if !slices.Equal(t.patterns, spec.Redact) {
		set, err := redact.Compile(spec.Redact)
		if err != nil {
			return err
		}
		t.patterns, t.redact = spec.Redact, set
	}
	r.Restrict(t.redact, !spec.Record.KeepsOutput())
	return nil
}

// startError returns why nothing can be started at the moment.
func (t *Table) startError() error {
	switch {
	case t.ending:
		return errEnding()
	case len(t.procs) >= maxProcesses:
		return kind.New(kind.Exhausted, "start", "", "too many processes in the sandbox")
	}
	return nil
}

func errEnding() error { return kind.New(kind.Unavailable, "start", "", "the sandbox is ending") }

// launch spawns p, or records why it cannot start.
func (p *proc) launch(spec *process.Spec) {
	if refusal := p.spawnInSlot(spec); refusal != nil {
		p.t.mu.Lock()
		defer p.t.mu.Unlock()
		p.failStart(refusal)
	}
}

// spawnInSlot waits for a start slot of p's user and spawns p.
func (p *proc) spawnInSlot(spec *process.Spec) error {
	t := p.t
	acct, err := t.cfg.Users.Lookup(spec.User)
	if err != nil {
		return err
	}
	turn := t.userSlots(acct.UID)
	turn <- struct{}{}
	defer func() { <-turn }()
	t.mu.Lock()
	unwanted := t.ending || p.finished
	t.mu.Unlock()
	if unwanted {
		return errEnding() // for a forgotten process, this is not recorded
	}
	return p.spawn(spec, &acct)
}

// userSlots returns the start slots of a user: one value for each start in progress.
func (t *Table) userSlots(uid int) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[uid] == nil {
		t.slots[uid] = make(chan struct{}, MaxStarts)
	}
	return t.slots[uid]
}

// failStart records that p does not start. Table.mu is held.
func (p *proc) failStart(why error) {
	p.startResolved()
	p.fail(process.Failed{Kind: uint32(kind.Of(why)), Message: kind.Message(why)})
	p.runPending()
}

// startResolved records that the outcome of a start is known, before any other event of p: hostd
// need not repeat the start, and p may be forgotten. Table.mu is held.
func (p *proc) startResolved() {
	t := p.t
	t.spawning--
	p.starting = false
	if p.rev > 0 { // else hostd did not request it, or another sandbox did
		t.replies.taken(p.rev)
	}
}

// runPending applies the commands that waited for the start. Table.mu is held.
func (p *proc) runPending() {
	commands := p.queued.commands
	p.queued = commandQueue{}
	for _, c := range commands {
		p.t.apply(c)
	}
}
