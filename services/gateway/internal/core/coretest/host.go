// Package coretest provides a fake host for tests of the gateway: it creates sandboxes
// and scripts processes purely by events, without running anything.
package coretest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
)

// Host plays scheduler, host and shim in a test. A process's Cmd selects its script:
//
//	true       ends with code 0
//	fail       ends with code 3
//	echo       writes its arguments, each to stdout with a newline, and ends with 0
//	lines      writes as many lines as its argument says, in one message, and ends with 0
//	nocwd      never starts, because its directory does not exist
//	cat        writes its input until EOF or a signal
//	sleep      runs until a signal
//	unheard    the command is not even read
//
// For a shell, the last argument, split at spaces, is the script.
type Host struct {
	Name string
	tb   testing.TB
	log  *events.Log
	view *catalog.View
	ring *seal.Ring

	// Refuse, if set, is the kind with which every sandbox is refused.
	Refuse kind.Kind

	// Script, if set, returns what a process writes to stdout, and whether it then ends with 0
	// or goes on like cat. Without ok the process does what its Cmd says.
	Script func(spec *process.Spec) (out string, ends, ok bool)

	// Answer, if set, returns what a process writes to stdout for its input, instead of the input.
	Answer func(spec *process.Spec, in []byte) []byte

	ignoreStarts atomic.Bool
	accept       atomic.Pointer[func(*mux.Stream)] // nil: no port is open

	mu     sync.Mutex
	pid    uint32
	procs  map[process.ID]*proc
	starts map[process.ID]int
	rev    uint64 // of the lease
}

type proc struct {
	w   *record.Writer
	sum process.Summary
	rev uint64
	out uint64
	in  uint64

	keys map[string][]byte // input by key
	env  map[string]string
}

const epoch = 7

// Run runs a host until the test ends.
func Run(tb testing.TB, log *events.Log, view *catalog.View) *Host {
	tb.Helper()
	h := New(tb, log, view)
	h.Start()
	return h
}

// New returns a host that does nothing yet.
func New(tb testing.TB, log *events.Log, view *catalog.View) *Host {
	tb.Helper()
	return &Host{
		Name: "h1", tb: tb, log: log, view: view, ring: eventstest.Ring(tb, log),
		procs: make(map[process.ID]*proc), starts: make(map[process.ID]int),
	}
}

// Start runs the host until the test ends.
func (h *Host) Start() {
	h.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.Lease(ctx, fleet.Lease{TTL: time.Hour})
	var wg sync.WaitGroup
	wg.Go(func() { h.sandboxes(ctx) })
	wg.Go(func() {
		if err := h.log.Commands(ctx, h.Name, 0, func(c command.Command) error { return h.command(ctx, c) }); err != nil && ctx.Err() == nil {
			h.tb.Errorf("host: %v", err)
		}
	})
	wg.Go(func() {
		h.log.ServeTunnels(ctx, h.Name, func(s *mux.Stream) {
			if accept := h.accept.Load(); accept != nil {
				(*accept)(s)
				return
			}
			s.Abort(kind.New(kind.Precondition, "open port", s.Target(), "the port is not open"))
		})
	})
	h.tb.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// Lease stores the host's next lease; its name and epoch are filled in.
func (h *Host) Lease(ctx context.Context, l fleet.Lease) {
	h.tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	rev, err := h.log.PutLease(ctx, h.lease(l), h.rev)
	if err != nil {
		h.tb.Errorf("lease: %v", err)
	}
	h.rev = rev
	if err := h.view.Sync(ctx); err != nil {
		h.tb.Errorf("lease: %v", err)
	}
}

func (h *Host) lease(l fleet.Lease) fleet.Lease {
	l.Host, l.Epoch, l.Capacity, l.CPUs, l.MemoryTotal, l.DiskTotal, l.Drivers = h.Name, epoch, 10, 2, 4<<30, 8<<30, []string{"fake"}
	return l
}

// SetRefuse sets Refuse of a running host.
func (h *Host) SetRefuse(k kind.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Refuse = k
}

// SetIgnoreStarts makes the host ignore the commands that start processes, as if it were
// unreachable.
func (h *Host) SetIgnoreStarts(deaf bool) { h.ignoreStarts.Store(deaf) }

// Env returns the environment of the process in a sandbox with a tag; nil if there is none.
func (h *Host) Env(id sandbox.ID, tag string) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.procs {
		if t := p.sum.Spec.Tag; p.sum.ID.Sandbox() == id && t != nil && *t == tag {
			return p.env
		}
	}
	return nil
}

// SetAccept makes the host pass the streams to its sandboxes' ports to accept.
func (h *Host) SetAccept(accept func(*mux.Stream)) { h.accept.Store(&accept) }

// Starts returns how often a process was actually started.
func (h *Host) Starts(id process.ID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts[id]
}

// sandboxes appends the events that the sandboxes' records require.
func (h *Host) sandboxes(ctx context.Context) {
	changed, stop := h.view.Changes()
	defer stop()
	for {
		for _, s := range h.view.Sandboxes(func(s *sandbox.State) bool { return !s.Over() }) {
			_, err := h.view.ChangeSandbox(ctx, s.ID, h.decide)
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) { // the test ends the view first
				h.tb.Errorf("host: sandbox %s: %v", s.ID, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (h *Host) decide(s sandbox.State) ([]sandbox.Body, error) {
	switch s.Phase {
	case sandbox.PhaseRequested:
		h.mu.Lock()
		no := h.Refuse
		h.mu.Unlock()
		if no != 0 {
			return []sandbox.Body{sandbox.Refused{Kind: uint32(no), Reason: "no " + no.String()}}, nil
		}
		if from := s.Request.FromHost; from != "" && from != h.Name {
			return []sandbox.Body{sandbox.Refused{Kind: uint32(kind.Unavailable), Reason: "the snapshot's host takes no sandbox"}}, nil
		}
		if s.Request.Metadata["make"] == "never" {
			return nil, nil
		}
		return []sandbox.Body{sandbox.Placed{Host: h.Name, Epoch: epoch}}, nil
	case sandbox.PhasePlaced:
		if s.Request.Metadata["make"] == "fail" {
			return []sandbox.Body{sandbox.Failed{Message: "secret path /x"}}, nil
		}
		return []sandbox.Body{sandbox.Running{Driver: "fake", Isolation: s.Request.Isolation, Can: sandbox.Abilities{
			Pause: s.Request.Metadata["pause"] != "never", Files: s.Request.Metadata["snapshot"] != "never",
			Memory: s.Request.Metadata["memory"] == "kept",
		}}}, nil
	case sandbox.PhasePausing:
		if s.Request.Metadata["pause"] == "fail" {
			return []sandbox.Body{sandbox.Resumed{Message: "it will not"}}, nil
		}
		if s.Request.Metadata["pause"] == "held" { // the test appends Paused itself
			return nil, nil
		}
		return []sandbox.Body{sandbox.Paused{}}, nil
	case sandbox.PhaseResuming:
		if s.Request.Metadata["resume"] == "fail" {
			return []sandbox.Body{sandbox.Paused{Message: "it will not"}}, nil
		}
		return []sandbox.Body{sandbox.Resumed{}}, nil
	case sandbox.PhaseStopping:
		return []sandbox.Body{sandbox.Destroyed{Cause: s.Cause}}, nil
	}
	return nil, nil
}

// errStdin is the answer to input after EOF.
var errStdin = kind.New(kind.Conflict, "stdin", "", "stdin is closed")

func (h *Host) command(ctx context.Context, c command.Command) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.procs[c.Process]
	if p != nil && p.sum.Exit != nil {
		p = nil
	}
	r := command.Reply{}
	var err error
	switch b := c.Body.(type) {
	case command.Start:
		return h.start(ctx, c, b.Spec)
	case command.Drain:
		h.rev, err = h.log.PutLease(ctx, h.lease(fleet.Lease{TTL: time.Hour, Draining: b.Drain}), h.rev)
		h.log.Reply(c, command.Reply{Err: err})
		return nil
	case command.TakeSnapshot:
		r.Err = h.log.PutSnapshot(ctx, &sandbox.Snapshot{
			ID: b.ID, Tenant: c.Tenant, Sandbox: c.Process.Sandbox(), Host: h.Name, Driver: "fake", Template: "base",
			Name: b.Name, Memory: b.Memory, Internal: b.Internal, Layer: b.Layer, Taken: time.Now(), Resources: sandbox.Resources{MemoryMiB: 77},
		})
		h.log.Reply(c, r)
		return nil
	default:
		if p == nil {
			h.log.Reply(c, command.Reply{Err: kind.New(kind.NotFound, "command", "", "process not found")})
			return nil
		}
	}
	switch b := c.Body.(type) {
	case command.Start: // done
	case command.Stdin:
		if p.sum.Spec.Cmd == "deaf" { // it reads nothing, so no answer is due yet
			return nil
		}
		if err = h.stdin(ctx, p, c.ID, b); errors.Is(err, errStdin) {
			r.Err, err = err, nil
		}
	case command.Signal:
		err = h.signal(ctx, p, c.ID, b.Signal)
	case command.Resize:
		err = p.append(ctx, process.Resized(b))
	}
	h.log.Reply(c, r)
	return ignore(ctx, err)
}

func ignore(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func (h *Host) start(ctx context.Context, c command.Command, spec process.Spec) error {
	cmd, args := script(&spec)
	if cmd == "unheard" || h.ignoreStarts.Load() {
		return nil
	}
	st, _ := h.view.Sandbox(c.Process.Sandbox())
	open := spec
	var err error
	if open.Env, err = spec.OpenEnv(h.ring, st.Tenant, c.Process); err != nil {
		return err
	}
	p := &proc{w: h.log.Writer(record.Ref{Host: h.Name, ID: c.Process}, epoch)}
	err = p.append(ctx, process.Accepted{Spec: spec.Public(), Command: c.ID, SpecHash: open.Hash(h.ring, st.Tenant, st.ID), Tenant: st.Tenant})
	if kind.Is(err, kind.Conflict) {
		return nil // started before
	}
	if err != nil {
		return ignore(ctx, err)
	}
	h.starts[c.Process]++
	h.procs[c.Process] = p
	p.sum = process.Summary{ID: c.Process, Tenant: st.Tenant, Host: h.Name, Epoch: epoch, Spec: spec.Public()}
	p.env = open.Env
	if cmd == "nocwd" {
		p.sum.Exit = &process.Exit{Cause: process.CauseNotStarted}
		return ignore(ctx, p.append(ctx,
			process.Failed{Kind: uint32(kind.Invalid), Message: "cwd '/nope' does not exist"},
			process.Finished{Exit: *p.sum.Exit}))
	}
	h.pid++
	p.sum.PID, p.sum.Started = h.pid, time.Now()
	if err := h.put(ctx, p); err != nil {
		return ignore(ctx, err)
	}
	if err := p.append(ctx, process.Started{PID: p.sum.PID}); err != nil {
		return ignore(ctx, err)
	}
	return ignore(ctx, h.play(ctx, p, cmd, args))
}

// script returns what a process does: its own command, or its shell's.
func script(spec *process.Spec) (cmd string, args []string) {
	if n := len(spec.Args); n > 0 && strings.HasSuffix(spec.Cmd, "sh") {
		if words := strings.Fields(spec.Args[n-1]); len(words) > 0 {
			return words[0], words[1:]
		}
	}
	return spec.Cmd, spec.Args
}

func (h *Host) play(ctx context.Context, p *proc, cmd string, args []string) error {
	code := int32(0)
	if h.Script != nil {
		if out, ends, ok := h.Script(&p.sum.Spec); ok {
			if err := p.wrote(ctx, process.Stdout, []byte(out)); err != nil || !ends {
				return err
			}
			return h.end(ctx, p, process.Exit{Code: &code, Cause: process.CauseExited})
		}
	}
	switch cmd {
	case "cat", "sleep", "deaf":
		return nil
	case "fail":
		code = 3
	case "echo":
		for _, a := range args {
			stream, data := process.Stdout, a+"\n"
			if strings.HasPrefix(a, "err:") {
				stream = process.Stderr
			}
			if err := p.wrote(ctx, stream, []byte(data)); err != nil {
				return err
			}
		}
	}
	if cmd == "lines" {
		if err := p.lines(ctx, args[0]); err != nil {
			return err
		}
	}
	return h.end(ctx, p, process.Exit{Code: &code, Cause: process.CauseExited})
}

// lines writes count lines, in events of the size of a shim's.
func (p *proc) lines(ctx context.Context, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	var all []process.Body
	for part := range slices.Chunk([]byte(strings.Repeat("x\n", n)), 64<<10) {
		all = append(all, process.Wrote{Stream: process.Stdout, Offset: p.out, Data: part})
		p.out += uint64(len(part))
	}
	return p.append(ctx, all...)
}

func (h *Host) stdin(ctx context.Context, p *proc, id string, in command.Stdin) error {
	if key := process.InputKey(id); key != "" {
		if previous, ok := p.keys[key]; ok && !bytes.Equal(previous, in.Data) {
			return errStdin
		} else if ok {
			return nil
		}
		if p.keys == nil {
			p.keys = make(map[string][]byte)
		}
		p.keys[key] = in.Data
	}
	if len(in.Data) > 0 {
		p.in += uint64(len(in.Data))
		out := in.Data
		if h.Answer != nil {
			out = h.Answer(&p.sum.Spec, in.Data)
		}
		if len(out) > 0 {
			if err := p.wrote(ctx, process.Stdout, out); err != nil {
				return err
			}
		}
	}
	if err := p.append(ctx, process.StdinAcked{Offset: p.in, Command: id, EOF: in.EOF}); err != nil || !in.EOF {
		return err
	}
	code := int32(0)
	return h.end(ctx, p, process.Exit{Code: &code, Cause: process.CauseExited})
}

func (h *Host) signal(ctx context.Context, p *proc, id string, sig int32) error {
	p.sum.Killed = p.sum.Killed || sig == 9 || sig == 15
	if err := h.put(ctx, p); err != nil {
		return err
	}
	if err := p.append(ctx, process.Signaled{Signal: sig, Command: id}); err != nil {
		return err
	}
	if sig == 15 { // trapped
		return nil
	}
	return h.end(ctx, p, process.Exit{Signal: sig, Cause: process.CauseKilled})
}

func (h *Host) end(ctx context.Context, p *proc, x process.Exit) error {
	p.sum.Exit, p.sum.Ended = &x, time.Now()
	if err := h.put(ctx, p); err != nil {
		return err
	}
	return p.append(ctx, process.Exited{Exit: x}, process.Finished{Exit: x})
}

func (h *Host) put(ctx context.Context, p *proc) (err error) {
	p.rev, err = h.log.PutSummary(ctx, &p.sum, p.rev)
	return err
}

func (p *proc) wrote(ctx context.Context, s process.Stream, data []byte) error {
	err := p.append(ctx, process.Wrote{Stream: s, Offset: p.out, Data: data})
	p.out += uint64(len(data))
	return err
}

func (p *proc) append(ctx context.Context, bodies ...process.Body) error {
	var batch []process.Event
	for i, b := range bodies {
		batch = append(batch, process.Event{Seq: p.w.Last() + 1 + process.Seq(i), Time: time.Now(), Body: b})
	}
	return p.w.Append(ctx, batch)
}
