package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeGateway is a fake gateway with one process.
type fakeGateway struct {
	t   *testing.T
	srv *httptest.Server

	mu       sync.Mutex
	record   []string      // events as JSON without seq
	grown    chan struct{} // closed and replaced when record grows
	cutAfter map[int]bool  // events after which the connection breaks once
	onInput  func([]byte, bool)
	onCreate func()
	fail     map[string]int // number of 503 responses, by method and path
	mortal   bool           // a broken connection ends the gateway
	dead     bool
	pty      bool     // the process has a terminal
	first    int      // first event kept; 0: all are kept
	most     int64    // maximum timeout in seconds; 0: no maximum
	items    []string // undrainable items of a host, one element per poll; the last repeats

	commands []map[string]any
	keys     []string
	stdin    bytes.Buffer
	eof      bool
	signals  []int
	sizes    []winsize
	order    []string          // requests for events and sizes, in order
	files    map[string]string // last upload, by path and mode
	lists    int               // number of requests for lists
	created  int
	removed  []string
	afters   []string
	timeouts []int64
}

const fakeID = "01hzz-iabc"

func newFakeGateway(t *testing.T, record ...string) *fakeGateway {
	t.Helper()
	g := &fakeGateway{t: t, record: slices.Clone(record), grown: make(chan struct{}), cutAfter: map[int]bool{}, fail: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sandboxes", g.create)
	mux.HandleFunc("POST /sandboxes/{id}/fork", func(w http.ResponseWriter, r *http.Request) {
		if g.allowsTimeout(w, r) {
			fmt.Fprint(w, `[{"sandbox":{"sandboxID":"ifork"}}]`)
		}
	})
	mux.HandleFunc("POST /v2/sandboxes/{id}/connect", func(w http.ResponseWriter, r *http.Request) { g.allowsTimeout(w, r) })
	mux.HandleFunc("POST /sandboxes/{id}/timeout", func(w http.ResponseWriter, r *http.Request) { g.allowsTimeout(w, r) })
	mux.HandleFunc("DELETE /sandboxes/{id}", g.remove)
	mux.HandleFunc("GET /v1/sandboxes", g.list)
	mux.HandleFunc("GET /v1/sandboxes/{id}", g.show)
	mux.HandleFunc("GET /v1/sandboxes/{id}/ports/{port}", g.tunnel)
	mux.HandleFunc("POST /filesystem.Filesystem/Stat", g.stat)
	mux.HandleFunc("POST /files", g.putFile)
	mux.HandleFunc("GET /files", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "content") })
	mux.HandleFunc("POST /commands", g.start)
	mux.HandleFunc("GET /v1/processes", g.processes)
	mux.HandleFunc("GET /v1/processes/{id}", g.process)
	mux.HandleFunc("GET /v1/processes/{id}/events", g.events)
	mux.HandleFunc("POST /v1/processes/{id}/stdin", g.input)
	mux.HandleFunc("POST /v1/processes/{id}/signal", g.signal)
	mux.HandleFunc("POST /v1/processes/{id}/resize", g.resize)
	mux.HandleFunc("GET /v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"hosts":[{"name":"local","state":"alive","alive":true,"capacity":9,"sandboxes":1,"drivers":["direct"]}]}`)
	})
	mux.HandleFunc("POST /v1/hosts/{id}/drain", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/hosts/{id}/held", g.undrainable)
	mux.HandleFunc("GET /api-keys", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id":"aa","name":"","mask":{"prefix":"e2b_","maskedValuePrefix":"1234"},"createdAt":"2026-01-02T03:04:05Z"}]`)
	})
	mux.HandleFunc("POST /api-keys", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"bb","name":"ci","key":"e2b_secret"}`)
	})
	mux.HandleFunc("DELETE /api-keys/{id}", g.remove)
	mux.HandleFunc("GET /v1/events", g.tail)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	g.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-KEY") != "e2b_00" {
			respondError(w, 401, "no such key")
			return
		}
		g.mu.Lock()
		name := r.Method + " " + r.URL.Path
		failing := g.fail[name] > 0 || g.dead
		if g.fail[name] > 0 {
			g.fail[name]--
		}
		g.mu.Unlock()
		if failing {
			respondError(w, 503, "try again")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { g.srv.CloseClientConnections(); g.srv.Close() })
	return g
}

func respondError(w http.ResponseWriter, status int, msg string) {
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"code": status, "message": msg})
}

func (g *fakeGateway) locked(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// grow adds events to the record.
func (g *fakeGateway) grow(events ...string) {
	g.locked(func() {
		g.record = append(g.record, events...)
		close(g.grown)
		g.grown = make(chan struct{})
	})
}

// allowsTimeout reports whether the requested timeout is allowed; otherwise it responds 400.
func (g *fakeGateway) allowsTimeout(w http.ResponseWriter, r *http.Request) bool {
	var body struct{ Timeout int64 }
	json.NewDecoder(r.Body).Decode(&body)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timeouts = append(g.timeouts, body.Timeout)
	if g.most > 0 && body.Timeout > g.most {
		respondError(w, 400, fmt.Sprintf("timeout cannot be greater than %d seconds", g.most))
		return false
	}
	return true
}

func (g *fakeGateway) create(w http.ResponseWriter, r *http.Request) {
	if !g.allowsTimeout(w, r) {
		return
	}
	var on func()
	g.locked(func() { g.created, on = g.created+1, g.onCreate })
	if on != nil {
		on()
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"sandboxID":"iabc","templateID":"base","clientID":"c","envdVersion":"0.6.13"}`)
}

func (g *fakeGateway) remove(w http.ResponseWriter, r *http.Request) {
	g.locked(func() { g.removed = append(g.removed, r.PathValue("id")) })
	w.WriteHeader(http.StatusNoContent)
}

func (g *fakeGateway) undrainable(w http.ResponseWriter, r *http.Request) {
	g.locked(func() {
		fmt.Fprintf(w, `{"host":%q,"state":"draining","safe":%v,"held":[%s]}`, r.PathValue("id"), g.items[0] == "", g.items[0])
		g.items = g.items[min(1, len(g.items)-1):]
	})
}

// sandboxes lists the sandboxes of the fake gateway, newest first.
var sandboxes = []string{
	`{"sandbox":"i1","template":"` + strings.Repeat("0123456789abcdef", 4) + `","alias":"standard","state":"running","created_at":"2026-01-02T03:04:05.123456789Z","started_at":null}`,
	`{"sandbox":"i3","template":"` + strings.Repeat("fedcba9876543210", 4) + `","state":"running"}`,
	`{"sandbox":"i2","template":"ba\u001b[31mse","state":"paused"}`,
	`{"sandbox":"iabc","template":"base","state":"running"}`,
	`{"sandbox":"iend","template":"base","state":"ended","outcome":"lost","ended_at":"2026-01-02T03:04:05.1Z"}`,
}

func (g *fakeGateway) list(w http.ResponseWriter, r *http.Request) {
	g.locked(func() { g.lists++ })
	var out []string
	for _, s := range sandboxes {
		if states := r.URL.Query().Get("state"); states == "" || !strings.Contains(s, `"state":"ended"`) {
			out = append(out, s)
		}
	}
	fmt.Fprintf(w, "[%s]", strings.Join(out, ","))
}

func (g *fakeGateway) show(w http.ResponseWriter, r *http.Request) {
	for _, s := range sandboxes {
		if strings.Contains(s, `"sandbox":"`+r.PathValue("id")+`"`) {
			fmt.Fprint(w, s)
			return
		}
	}
	respondError(w, 404, "sandbox not found")
}

func (g *fakeGateway) start(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("E2b-Sandbox-Id") != "iabc" {
		respondError(w, 404, "sandbox not found")
		return
	}
	var body map[string]any
	json.NewDecoder(r.Body).Decode(&body)
	body["sandbox"] = r.Header.Get("E2b-Sandbox-Id")
	g.locked(func() {
		g.commands = append(g.commands, body)
		g.keys = append(g.keys, r.Header.Get("Idempotency-Key"))
	})
	w.Header().Set("X-Process-Id", fakeID)
	fmt.Fprintf(w, `{"type":"start","pid":7,"process":%q}`+"\n", fakeID)
}

const fakeProcess = `{"process":"01hzz-iabc","sandbox":"iabc","pid":7,"cmd":"/bin/bash","args":["-l","-c","sleep 9"],"state":"running","started_at":"2026-01-02T03:04:05Z","exit_code":null}`

func (g *fakeGateway) processes(w http.ResponseWriter, r *http.Request) {
	g.locked(func() { g.lists++ })
	if r.URL.Query().Get("limit") == "1" {
		fmt.Fprint(w, "["+fakeProcess+"]")
		return
	}
	fmt.Fprint(w, "["+fakeProcess+`,{"process":"02-iabc","pid":8,"cmd":"true","args":[],"state":"ended","exit_code":3,"cause":"exited"}]`)
}

func (g *fakeGateway) process(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != fakeID {
		respondError(w, 404, "process not found")
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pty {
		fmt.Fprint(w, strings.Replace(fakeProcess, "{", `{"pty":{"cols":80,"rows":24},`, 1))
		return
	}
	fmt.Fprint(w, fakeProcess)
}

func (g *fakeGateway) events(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != fakeID {
		respondError(w, 404, "process not found")
		return
	}
	g.locked(func() {
		g.afters = append(g.afters, r.URL.Query().Get("after"))
		g.order = append(g.order, "events "+r.URL.Query().Get("after"))
	})
	at, _ := strconv.Atoi(r.URL.Query().Get("after"))
	if r.URL.Query().Get("after") == "now" {
		g.locked(func() { at = len(g.record) })
	}
	w.Header().Set("X-Record-After", strconv.Itoa(at))
	if at+1 < g.first {
		w.WriteHeader(http.StatusGone)
		fmt.Fprintf(w, `{"code":410,"message":"retention has passed","first":%d}`, g.first)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	fmt.Fprintln(w, `{"type":"keepalive","after":0}`)
	for {
		g.mu.Lock()
		grown, have := g.grown, len(g.record)
		var line string
		cut := false
		if at < have {
			line = g.record[at]
			at++
			cut = g.cutAfter[at]
			delete(g.cutAfter, at)
			g.dead = cut && g.mortal
		}
		g.mu.Unlock()
		switch {
		case line != "":
			fmt.Fprintf(w, `{"seq":%d,"time":"2026-01-02T03:04:05.000006Z",%s`+"\n", at, line[1:])
			if cut {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			if strings.Contains(line, `"type":"end"`) {
				return
			}
		case r.URL.Query().Get("follow") == "0":
			return
		default:
			w.(http.Flusher).Flush()
			select {
			case <-grown:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// tail sends the record as the events of the installation. After a break it starts again
// from the beginning, because clients resume at a time and not at an event.
func (g *fakeGateway) tail(w http.ResponseWriter, r *http.Request) {
	g.locked(func() { g.afters = append(g.afters, r.URL.Query().Get("after")) })
	for i, line := range g.record {
		fmt.Fprintf(w, `{"record":"process","rev":9,"tenant":"t","sandbox":"iabc","process":%q,"host":"h","seq":%d,"time":"2026-01-02T03:04:%02dZ",%s`+"\n", fakeID, i+1, i, line[1:])
		if g.cutAfter[i+1] {
			delete(g.cutAfter, i+1)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	if r.URL.Query().Get("follow") == "0" {
		return
	}
	fmt.Fprintln(w, `{"type":"error","error_code":"denied","message":"enough"}`)
}

func (g *fakeGateway) input(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	eof := r.URL.Query().Get("eof") == "1"
	g.mu.Lock()
	g.stdin.Write(b)
	g.eof = g.eof || eof
	f := g.onInput
	g.mu.Unlock()
	if f != nil {
		f(b, eof)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (g *fakeGateway) signal(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != fakeID {
		respondError(w, 404, "process not found")
		return
	}
	var body struct{ Signal int }
	json.NewDecoder(r.Body).Decode(&body)
	g.locked(func() { g.signals = append(g.signals, body.Signal) })
	w.WriteHeader(http.StatusNoContent)
}

func (g *fakeGateway) resize(w http.ResponseWriter, r *http.Request) {
	var s winsize
	json.NewDecoder(r.Body).Decode(&s)
	g.locked(func() {
		g.sizes = append(g.sizes, s)
		g.order = append(g.order, fmt.Sprintf("size %dx%d", s.Cols, s.Rows))
	})
	w.WriteHeader(http.StatusNoContent)
}

// result is the outcome of a command.
type result struct {
	code        int
	say         string
	out, errOut string
}

// syncBuffer is a buffer that is safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// verb runs a command against the fake gateway.
func (g *fakeGateway) verb(in io.Reader, args ...string) result {
	g.t.Helper()
	env := map[string]string{"MILLRACE_URL": g.srv.URL, "MILLRACE_API_KEY": "e2b_00", "HOME": g.t.TempDir()}
	return verb(g.t, env, in, args...)
}

func verb(t *testing.T, env map[string]string, in io.Reader, args ...string) result {
	t.Helper()
	var out, errOut syncBuffer
	cfg := Config{In: in, Out: &out, Err: &errOut, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }, Version: "test"}
	for _, c := range Commands(cfg) {
		if c.Name() != args[0] {
			continue
		}
		c.SetArgs(args[1:])
		c.SetOut(&out)
		c.SetErr(&errOut)
		c.SilenceErrors = true
		code, say := ExitCode(c.ExecuteContext(t.Context()))
		return result{code, say, out.String(), errOut.String()}
	}
	t.Fatalf("command %s does not exist", args[0])
	return result{}
}
