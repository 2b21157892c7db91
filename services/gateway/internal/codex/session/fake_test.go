package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// world is a sandbox in memory with the records of its processes, which outlives connections.
type world struct {
	script  func(w *world, p *fakeProcess) // what a started process does; it runs in a goroutine
	openErr error
	files   session.Filesystem
	http    session.HTTP
	vars    map[string]string

	mu       sync.Mutex
	changed  chan struct{}
	byName   map[string]*fakeProcess
	byID     map[process.ID]*fakeProcess
	keys     map[string]bool
	input    map[string][]byte // by process
	signals  []string
	reads    int // batches read from records
	session  string
	attached bool
	detached int
	lost     chan struct{}
	block    chan struct{} // writes wait for it, if not nil
	busy     bool          // the sandbox cannot be described now
}

// fakeProcess is a process and its record.
type fakeProcess struct {
	w      *world
	proc   session.Process
	cmd    session.Command
	events []process.Event
	first  process.Seq // the first retained event
	in     chan []byte
	killed chan struct{}
}

func newWorld(script func(*world, *fakeProcess)) *world {
	return &world{
		script: script, changed: make(chan struct{}), byName: map[string]*fakeProcess{}, byID: map[process.ID]*fakeProcess{},
		keys: map[string]bool{}, input: map[string][]byte{}, vars: map[string]string{"PATH": "/bin", "HOME": "/home/user", "SECRET_KEY": "k"},
	}
}

func (w *world) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (p *fakeProcess) append(bodies ...process.Body) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, b := range bodies {
		p.events = append(p.events, process.Event{Seq: process.Seq(len(p.events)) + 1, Body: b})
	}
	p.w.notify()
}

func (p *fakeProcess) print(s string) {
	stream := process.Stdout
	if p.cmd.TTY {
		stream = process.PTY
	}
	p.append(process.Wrote{Stream: stream, Data: []byte(s)})
}

func (p *fakeProcess) exit(code int32) {
	x := process.Exit{Code: &code, Cause: process.CauseExited}
	p.append(process.Exited{Exit: x}, process.Finished{Exit: x})
}

func (p *fakeProcess) ended() bool {
	n := len(p.events)
	if n == 0 {
		return false
	}
	_, ok := p.events[n-1].Body.(process.Finished)
	return ok
}

// Open implements session.Opener.
func (w *world) Open(_ context.Context, resume string) (*session.Services, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.openErr != nil:
		return nil, w.openErr
	case resume != "" && resume != w.session:
		return nil, kind.New(kind.NotFound, "", "", "")
	case w.attached:
		return nil, kind.New(kind.Conflict, "", "", "")
	}
	w.session, w.attached, w.lost = "s1", true, make(chan struct{})
	a := &fakeAttachment{w: w, resumed: resume != "", lost: w.lost}
	return &session.Services{Attachment: a, Processes: w, Records: w, Controls: w, Environment: w, Filesystem: w.files, HTTP: w.http}, nil
}

type fakeAttachment struct {
	w       *world
	resumed bool
	lost    chan struct{}
}

func (a *fakeAttachment) Session() string { return "s1" }
func (a *fakeAttachment) Resumed() bool   { return a.resumed }
func (a *fakeAttachment) OnLost(f func()) (stop func() bool) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-a.lost:
			f()
		case <-stopped:
		}
	}()
	var once sync.Once
	return func() bool {
		once.Do(func() { close(stopped) })
		return true
	}
}
func (a *fakeAttachment) Detach() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.w.attached = false
	a.w.detached++
}

func (w *world) Start(_ context.Context, name string, cmd session.Command) (session.Process, session.Source, error) {
	w.mu.Lock()
	if w.byName[name] != nil {
		w.mu.Unlock()
		return session.Process{}, nil, kind.New(kind.Conflict, "start", name, "exists")
	}
	id := process.NewID(sandbox.ID("i1"))
	p := &fakeProcess{w: w, cmd: cmd, proc: session.Process{ID: id, Name: name, TTY: cmd.TTY, Stdin: cmd.Stdin}, first: 1, in: make(chan []byte, 100), killed: make(chan struct{})}
	w.byName[name], w.byID[id] = p, p
	w.mu.Unlock()
	p.append(process.Accepted{})
	if cmd.Argv[0] == "missing" {
		p.append(process.Failed{Message: "No such file or directory (os error 2)"}, process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}})
		w.mu.Lock()
		delete(w.byName, name)
		w.mu.Unlock()
	} else {
		p.append(process.Started{PID: 1})
		go w.script(w, p)
	}
	return p.proc, &fakeSource{w: w, p: p}, nil
}

func (w *world) Find(_ context.Context, name string) (session.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.byName[name]; p != nil {
		return p.proc, nil
	}
	return session.Process{}, kind.New(kind.NotFound, "find", name, "")
}

func (w *world) Running(context.Context) ([]session.Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []session.Process
	for _, p := range w.byName {
		if !p.ended() {
			out = append(out, p.proc)
		}
	}
	return out, nil
}

func (w *world) Tail(_ context.Context, id process.ID) (session.Tail, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var t session.Tail
	for _, e := range w.byID[id].events {
		t.Last = e.Seq
		switch b := e.Body.(type) {
		case process.Exited:
			t.Exited = &b.Exit
		case process.Finished:
			t.Finished = &b
		}
	}
	return t, nil
}

func (w *world) Read(_ context.Context, id process.ID, after process.Seq) (session.Source, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &fakeSource{w: w, p: w.byID[id], at: after}, nil
}

func (w *world) Write(ctx context.Context, id process.ID, key string, data []byte) error {
	w.mu.Lock()
	p, block := w.byID[id], w.block
	again := key != "" && w.keys[string(id)+key]
	w.keys[string(id)+key] = true
	ended := p.ended()
	w.mu.Unlock()
	if ended {
		return kind.New(kind.NotFound, "", "", "")
	}
	if again {
		return nil
	}
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.killed:
			return kind.New(kind.NotFound, "", "", "")
		}
	}
	w.mu.Lock()
	w.input[p.proc.Name] = append(w.input[p.proc.Name], data...)
	w.mu.Unlock()
	p.append(process.StdinAcked{})
	select {
	case p.in <- slices.Clone(data):
	case <-p.killed:
	case <-ctx.Done():
	}
	return nil
}

func (w *world) Signal(_ context.Context, id process.ID, sig int32) error {
	w.mu.Lock()
	p := w.byID[id]
	if p.ended() {
		w.mu.Unlock()
		return kind.New(kind.NotFound, "", "", "")
	}
	w.signals = append(w.signals, fmt.Sprintf("%s %d", p.proc.Name, sig))
	w.mu.Unlock()
	if sig == 9 {
		p.append(process.Signaled{Signal: sig})
		close(p.killed)
	}
	return nil
}

// die ends a process as a kill does.
func (p *fakeProcess) die() {
	x := process.Exit{Signal: 9, Cause: process.CauseKilled}
	p.append(process.Exited{Exit: x}, process.Finished{Exit: x})
}

func (w *world) Describe(ctx context.Context) (protocol.Info, map[string]string, error) {
	if w.busy {
		<-ctx.Done()
		return protocol.Info{}, nil, ctx.Err()
	}
	return protocol.Info{Shell: protocol.Shell{Name: "bash", Path: "/bin/bash"}, Cwd: "/home/user", TempDir: "/tmp", UserHomeDir: "/home/user"}, w.vars, nil
}

// fakeSource yields up to three events per batch.
type fakeSource struct {
	w  *world
	p  *fakeProcess
	at process.Seq
}

func (s *fakeSource) After() process.Seq { return s.at }
func (s *fakeSource) Close()             {}

func (s *fakeSource) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	var quiet <-chan time.Time
	if idle > 0 {
		timer := time.NewTimer(idle)
		defer timer.Stop()
		quiet = timer.C
	}
	for {
		s.w.mu.Lock()
		events, changed := s.p.events, s.w.changed
		if s.at+1 < s.p.first {
			gap := process.Event{Seq: s.p.first - 1, Body: process.Gap{From: 1, To: s.p.first - 1}}
			s.at = s.p.first - 1
			s.w.mu.Unlock()
			return []process.Event{gap}, nil
		}
		ended := s.p.ended()
		s.w.reads++
		s.w.mu.Unlock()
		if s.at < process.Seq(len(events)) {
			batch := slices.Clone(events[s.at:min(int(s.at)+3, len(events))])
			s.at += process.Seq(len(batch))
			return batch, nil
		}
		if ended {
			return nil, io.EOF
		}
		select {
		case <-changed:
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pipe is a transport in memory.
type pipe struct {
	in     chan []byte
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func newPipe() *pipe {
	return &pipe{in: make(chan []byte), out: make(chan []byte, 1<<14), closed: make(chan struct{})}
}

func (p *pipe) Read() ([]byte, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipe) Write(messages [][]byte) error {
	for _, m := range messages {
		select {
		case p.out <- slices.Clone(m):
		case <-p.closed:
			return errors.New("closed")
		}
	}
	return nil
}

func (p *pipe) Close() { p.once.Do(func() { close(p.closed) }) }

// client is a connection to a world.
type client struct {
	t    *testing.T
	pipe *pipe
	over chan error
	log  []string
}

// dial connects a client. The connection ends with the test at the latest.
func dial(t *testing.T, w *world, cfg session.Config) *client {
	t.Helper()
	cfg.Opener = w
	c := &client{t: t, pipe: newPipe(), over: make(chan error, 1)}
	go func() { c.over <- session.Serve(context.WithoutCancel(t.Context()), c.pipe, cfg) }()
	t.Cleanup(c.close)
	return c
}

// close cuts the connection and waits until it is over.
func (c *client) close() {
	c.pipe.Close()
	err := <-c.over
	c.over <- err
}

// ready connects a client and does the handshake.
func ready(t *testing.T, w *world, cfg session.Config) *client {
	t.Helper()
	c := dial(t, w, cfg)
	c.send(`{"id":0,"method":"initialize","params":{"clientName":"test"}}`)
	if got := c.next(); got.Result == nil {
		t.Fatalf("initialize: %s", got.raw)
	}
	c.send(`{"method":"initialized"}`)
	return c
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	raw := format
	if len(args) > 0 {
		raw = fmt.Sprintf(format, args...)
	}
	select {
	case c.pipe.in <- []byte(raw):
	case <-c.pipe.closed:
	}
}

// msg is a message of the server.
type msg struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Method string `json:"method"`
	Params struct {
		ProcessID string `json:"processId"`
		Seq       uint64 `json:"seq"`
		Stream    string `json:"stream"`
		Chunk     []byte `json:"chunk"`
		ExitCode  int    `json:"exitCode"`
		RequestID string `json:"requestId"`
		Delta     []byte `json:"deltaBase64"`
		Done      bool   `json:"done"`
		Error     string `json:"error"`
	} `json:"params"`
	raw string
}

// next returns the next message. The zero msg means that the connection was closed.
func (c *client) next() msg {
	c.t.Helper()
	select {
	case raw := <-c.pipe.out:
		return c.parse(raw)
	default:
	}
	select {
	case raw := <-c.pipe.out:
		return c.parse(raw)
	case <-c.pipe.closed:
		select {
		case raw := <-c.pipe.out:
			return c.parse(raw)
		default:
		}
		return msg{}
	case <-time.After(time.Hour): // of the bubble's clock
		c.t.Fatalf("no message; before it: %s", strings.Join(c.log, "\n"))
	}
	return msg{}
}

func (c *client) parse(raw []byte) msg {
	c.t.Helper()
	m := msg{raw: string(raw)}
	if err := json.Unmarshal(raw, &m); err != nil {
		c.t.Fatalf("%s: %v", raw, err)
	}
	if len(c.log) < 200 {
		c.log = append(c.log, m.raw[:min(len(m.raw), 200)])
	}
	return m
}

// answer returns the next answer, and drops notifications before it.
func (c *client) answer() msg {
	c.t.Helper()
	for {
		if m := c.next(); m.Method == "" {
			return m
		}
	}
}

// call sends a request and returns the result or error of its answer as text.
func (c *client) call(method, params string) string {
	c.t.Helper()
	c.send(`{"id":"call","method":"%s","params":%s}`, method, params)
	for {
		m := c.answer()
		switch {
		case m.raw == "":
			return "closed"
		case string(m.ID) != `"call"`:
		case m.Error != nil:
			return fmt.Sprintf("%d %s", m.Error.Code, m.Error.Message)
		default:
			return string(m.Result)
		}
	}
}

// readResult is the result of process/read.
type readResult struct {
	Chunks []struct {
		Seq    uint64 `json:"seq"`
		Stream string `json:"stream"`
		Chunk  []byte `json:"chunk"`
	} `json:"chunks"`
	NextSeq  uint64 `json:"nextSeq"`
	Exited   bool   `json:"exited"`
	ExitCode *int   `json:"exitCode"`
	Closed   bool   `json:"closed"`
	Failure  string `json:"failure"`
}

func (r *readResult) text() string {
	var b strings.Builder
	for _, c := range r.Chunks {
		b.Write(c.Chunk)
	}
	return b.String()
}

func (c *client) read(params string) readResult {
	c.t.Helper()
	var r readResult
	raw := c.call("process/read", params)
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		c.t.Fatalf("process/read: %s", raw)
	}
	return r
}

func start(name string, more string) string {
	return fmt.Sprintf(`{"processId":%q,"argv":["a"],"cwd":"/tmp","env":{},"tty":false%s}`, name, more)
}

// advance waits on the clock of the bubble.
func advance(d time.Duration) { <-time.After(d) }

// bubble runs a test with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
