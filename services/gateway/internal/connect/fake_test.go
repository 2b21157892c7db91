package connect

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// Sandboxes of the fake.
const (
	living  = sandbox.ID("iliving")
	dead    = sandbox.ID("idead")
	unknown = sandbox.ID("iunknown")
)

// noWatches implements Watches for tests without watches.
type noWatches struct{}

func (noWatches) WatchCursor(context.Context, process.ID) (catalog.WatchCursor, error) {
	return catalog.WatchCursor{}, nil
}

func (noWatches) PutWatchCursor(context.Context, process.ID, catalog.WatchCursor) (uint64, error) {
	return 1, nil
}

// fake implements Core in memory. Its processes follow scripts.
type fake struct {
	noWatches
	mu           sync.Mutex
	started      []process.Spec
	keys         []string
	inputs       []string // "data", or "EOF"
	signals      []int32
	sizes        []process.Size
	fileRequests []fileRequest
	procs        map[process.ID]*scripted

	script   *surfacetest.Record // script of processes that Start starts
	hold     int                 // events that are yielded before the source blocks
	batch    int                 // events per batch; 0: all
	startErr error
	inputErr error
	entry    []byte
}

type scripted struct {
	sum    process.Summary
	record *surfacetest.Record
}

func newFake(script *surfacetest.Record) *fake {
	return &fake{script: script, procs: map[process.ID]*scripted{}}
}

// add adds a process that is running or has ended.
func (f *fake) add(sbx sandbox.ID, pid uint32, r *surfacetest.Record) process.ID {
	id := process.NewID(sbx)
	p := &scripted{record: r, sum: process.Summary{ID: id, PID: pid, Spec: r.Spec, Started: time.Now()}}
	if fin, ok := r.Events[len(r.Events)-1].Body.(process.Finished); ok && f.hold == 0 {
		p.sum.Exit = &fin.Exit
	}
	f.procs[id] = p
	return id
}

func (f *fake) Sandbox(_ core.Principal, id sandbox.ID) (sandbox.State, error) {
	switch id {
	case living:
		return sandbox.State{ID: id, Phase: sandbox.PhaseRunning}, nil
	case dead:
		return sandbox.State{ID: id, Phase: sandbox.PhaseDestroyed}, nil
	}
	return sandbox.State{}, kind.New(kind.NotFound, "", "", "sandbox not found")
}

func (f *fake) Start(_ context.Context, _ core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sbx != living {
		return "", nil, kind.New(kind.NotFound, "", "", "sandbox not found")
	}
	if f.startErr != nil {
		return "", nil, f.startErr
	}
	f.started, f.keys = append(f.started, spec), append(f.keys, opt.IdempotencyKey)
	src := f.script.Source(0)
	src.Hold = f.hold
	return surfacetest.ID, src, nil
}

// OpenFiles responds like a sandbox in which every file is f.entry.
func (f *fake) OpenFiles(ctx context.Context, _ core.Principal, _ sandbox.ID, req *file.Request) (*core.Files, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := fileRequest{Request: *req, content: make(chan string, 1)}
	f.fileRequests = append(f.fileRequests, a)
	up, toUp := io.Pipe()
	down, toDown := io.Pipe()
	entry := f.entry
	go func() {
		if _, err := file.ReadFrame(up, nil); err != nil {
			toDown.CloseWithError(err)
			return
		}
		if req.Path == "/missing" {
			toDown.CloseWithError(kind.New(kind.NotFound, "", "", "path '/missing' does not exist"))
			return
		}
		if req.Op == file.OpWrite {
			b, _ := io.ReadAll(up)
			a.content <- string(b)
		}
		if req.Op != file.OpRemove {
			toDown.Write(file.AppendFrame(nil, entry))
		}
		if req.Op == file.OpList {
			toDown.Write(file.AppendFrame(nil, entry))
		}
		toDown.Close()
	}()
	return core.OpenFilesOver(ctx, filesPipe{down, toUp}, req)
}

// fileRequest is a received request about files.
type fileRequest struct {
	file.Request
	content chan string // content of a write
}

type filesPipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p filesPipe) CloseWrite() error { return p.PipeWriter.Close() }
func (p filesPipe) Abort(err error) {
	p.PipeReader.CloseWithError(err)
	p.PipeWriter.CloseWithError(err)
}

func (f *fake) Find(_ context.Context, _ core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.procs {
		s := &p.sum
		if s.ID.Sandbox() != sbx {
			continue
		}
		if sel.ID == s.ID || sel.PID != 0 && sel.PID == s.PID || sel.Tag != nil && s.Spec.Tag != nil && *sel.Tag == *s.Spec.Tag {
			return *s, nil
		}
	}
	return process.Summary{}, kind.New(kind.NotFound, "", "", "process not found")
}

func (f *fake) Env(s *process.Summary) (map[string]string, error) { return s.Spec.Env, nil }

func (f *fake) ActiveProcesses(_ context.Context, _ core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []process.Summary
	for _, id := range slices.Sorted(maps.Keys(f.procs)) {
		if p := f.procs[id]; id.Sandbox() == sbx && p.sum.Active() && keep(&p.sum) {
			out = append(out, p.sum)
		}
	}
	return out, nil
}

func (f *fake) Tail(_ context.Context, _ core.Principal, id process.ID) (record.Tail, error) {
	r := f.procs[id].record
	tip := record.Tail{Last: process.Seq(len(r.Events))}
	if fin, ok := r.Events[len(r.Events)-1].Body.(process.Finished); ok {
		tip.Finished = &fin
	}
	return tip, nil
}

func (f *fake) Read(_ context.Context, _ core.Principal, id process.ID, after process.Seq) (stream.Source, error) {
	src := f.procs[id].record.Source(after)
	src.Hold, src.Batch = f.hold, f.batch
	return src, nil
}

func (f *fake) SendInput(_ context.Context, _ core.Principal, _ process.ID, data []byte, eof bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inputErr != nil {
		return f.inputErr
	}
	f.inputs = append(f.inputs, string(data))
	if eof {
		f.inputs = append(f.inputs, "EOF")
	}
	return nil
}

func (f *fake) SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error {
	return f.SendInput(ctx, p, id, append([]byte(key+": "), data...), eof)
}

func (f *fake) Signal(_ context.Context, _ core.Principal, id process.ID, sig int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.procs[id].sum.Active() {
		return kind.New(kind.NotFound, "", "", "ended")
	}
	f.signals = append(f.signals, sig)
	return nil
}

func (f *fake) Resize(_ context.Context, _ core.Principal, _ process.ID, size process.Size) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes = append(f.sizes, size)
	return nil
}

// surface serves the processes of a fake on a loopback port.
type surface struct {
	*fake
	base    string
	streams *stream.Streams
}

func serve(t testing.TB, f *fake, cfg Config) *surface {
	t.Helper()
	s := serveCore(t, f, cfg)
	s.fake = f
	return s
}

func serveCore(t testing.TB, f Core, cfg Config) *surface {
	t.Helper()
	s := &surface{streams: stream.New(stream.Config{})}
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadBufferSize: 16 << 10, StreamRequestBody: true})
	app.Use(func(c *fiber.Ctx) error {
		auth.Set(c, core.Principal{Tenant: "t"})
		return c.Next()
	})
	New(f, s.streams, cfg).Register(app)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.base = "http://" + ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- app.Listener(httpconn.Listen(ln)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		http.DefaultClient.CloseIdleConnections()
		s.streams.Drain(ctx)
		app.ShutdownWithTimeout(time.Second)
		<-done
	})
	return s
}

// reply is a complete response.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a request; headers are "Name: value".
func (s *surface) post(t testing.TB, path, contentType, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", string(living))
	req.Header.Set("Content-Type", contentType)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(raw)}
}

// unary calls a unary method in JSON.
func (s *surface) unary(t testing.TB, method, body string, headers ...string) reply {
	t.Helper()
	return s.post(t, processService+method, typeJSON, body, headers...)
}

// envelope returns a message in an envelope.
func envelope(flags byte, msg string) string {
	raw, at := openEnvelope(nil)
	return string(closeEnvelope(append(raw, msg...), at, flags))
}

// stream calls a streaming method in JSON.
func (s *surface) stream(t testing.TB, method, msg string, headers ...string) reply {
	t.Helper()
	return s.post(t, processService+method, typeStreamJSON, envelope(0, msg), headers...)
}

// lines returns the payloads of a stream's envelopes, the last one prefixed "END ".
func (r *reply) lines(t *testing.T) []string {
	t.Helper()
	flags, payloads := split(t, []byte(r.body))
	out := make([]string, len(payloads))
	for i, p := range payloads {
		if out[i] = string(p); flags[i] == flagEnd {
			out[i] = "END " + out[i]
		}
	}
	return out
}
