package clitest

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

	"github.com/millrace/millrace/internal/cli/client"
)

// Gateway is a fake gateway with one process.
type Gateway struct {
	t      *testing.T
	Server *httptest.Server

	Mu       sync.Mutex
	record   []string      // events as JSON without seq
	grown    chan struct{} // closed and replaced when record grows
	CutAfter map[int]bool  // events after which the connection breaks once
	OnInput  func([]byte, bool)
	OnCreate func()
	Fail     map[string]int // number of 503 responses, by method and path
	Mortal   bool           // a broken connection ends the gateway
	dead     bool
	PTY      bool     // the process has a terminal
	First    int      // first event kept; 0: all are kept
	Most     int64    // maximum timeout in seconds; 0: no maximum
	Items    []string // undrainable items of a host, one element per poll; the last repeats

	Commands []map[string]any
	Keys     []string
	Stdin    bytes.Buffer
	EOF      bool
	Signals  []int
	sizes    []client.Winsize
	Order    []string          // requests for events and sizes, in order
	Files    map[string]string // last upload, by path and mode
	Lists    int               // number of requests for lists
	Created  int
	Removed  []string
	Afters   []string
	Timeouts []int64
}

const ProcessID = "01hzz-iabc"

// NewGateway returns a gateway whose process has the given events. It is closed with the
// test.
func NewGateway(t *testing.T, record ...string) *Gateway {
	t.Helper()
	g := &Gateway{t: t, record: slices.Clone(record), grown: make(chan struct{}), CutAfter: map[int]bool{}, Fail: map[string]int{}}
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
	mux.HandleFunc("GET /sandboxes/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch id := r.PathValue("id"); id {
		case "ifull", "iopen":
			token := map[string]string{"ifull": "t0"}[id]
			fmt.Fprintf(w, `{"sandboxID":%q,"envdAccessToken":%q}`, id, token)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"code":404,"message":"sandbox not found"}`)
		}
	})
	mux.HandleFunc("GET /v1/store/sandboxes", g.list)
	mux.HandleFunc("GET /v1/store/sandboxes/{id}", g.show)
	mux.HandleFunc("GET /v1/store/sandboxes/{id}/ports/{port}", g.tunnel)
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
	mux.HandleFunc("GET /v1/hosts/{id}/undrainable", g.undrainable)
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
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-KEY") != "e2b_00" {
			respondError(w, 401, "no such key")
			return
		}
		g.Mu.Lock()
		name := r.Method + " " + r.URL.Path
		failing := g.Fail[name] > 0 || g.dead
		if g.Fail[name] > 0 {
			g.Fail[name]--
		}
		g.Mu.Unlock()
		if failing {
			respondError(w, 503, "try again")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { g.Server.CloseClientConnections(); g.Server.Close() })
	return g
}

func respondError(w http.ResponseWriter, status int, msg string) {
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"code": status, "message": msg})
}

func (g *Gateway) Locked(f func()) {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	f()
}

// Grow adds events to the record.
func (g *Gateway) Grow(events ...string) {
	g.Locked(func() {
		g.record = append(g.record, events...)
		close(g.grown)
		g.grown = make(chan struct{})
	})
}

// allowsTimeout reports whether the requested timeout is allowed; otherwise it responds 400.
func (g *Gateway) allowsTimeout(w http.ResponseWriter, r *http.Request) bool {
	var body struct{ Timeout int64 }
	json.NewDecoder(r.Body).Decode(&body)
	g.Mu.Lock()
	defer g.Mu.Unlock()
	g.Timeouts = append(g.Timeouts, body.Timeout)
	if g.Most > 0 && body.Timeout > g.Most {
		respondError(w, 400, fmt.Sprintf("timeout cannot be greater than %d seconds", g.Most))
		return false
	}
	return true
}

func (g *Gateway) create(w http.ResponseWriter, r *http.Request) {
	if !g.allowsTimeout(w, r) {
		return
	}
	var on func()
	g.Locked(func() { g.Created, on = g.Created+1, g.OnCreate })
	if on != nil {
		on()
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"sandboxID":"iabc","templateID":"base","clientID":"c","envdVersion":"0.6.13"}`)
}

func (g *Gateway) remove(w http.ResponseWriter, r *http.Request) {
	g.Locked(func() { g.Removed = append(g.Removed, r.PathValue("id")) })
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) undrainable(w http.ResponseWriter, r *http.Request) {
	g.Locked(func() {
		fmt.Fprintf(w, `{"host":%q,"state":"draining","safe":%v,"undrainable":[%s]}`, r.PathValue("id"), g.Items[0] == "", g.Items[0])
		g.Items = g.Items[min(1, len(g.Items)-1):]
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

func (g *Gateway) list(w http.ResponseWriter, r *http.Request) {
	g.Locked(func() { g.Lists++ })
	var out []string
	for _, s := range sandboxes {
		if states := r.URL.Query().Get("state"); states == "" || !strings.Contains(s, `"state":"ended"`) {
			out = append(out, s)
		}
	}
	fmt.Fprintf(w, "[%s]", strings.Join(out, ","))
}

func (g *Gateway) show(w http.ResponseWriter, r *http.Request) {
	for _, s := range sandboxes {
		if strings.Contains(s, `"sandbox":"`+r.PathValue("id")+`"`) {
			fmt.Fprint(w, s)
			return
		}
	}
	respondError(w, 404, "sandbox not found")
}

func (g *Gateway) start(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("E2b-Sandbox-Id") != "iabc" {
		respondError(w, 404, "sandbox not found")
		return
	}
	var body map[string]any
	json.NewDecoder(r.Body).Decode(&body)
	body["sandbox"] = r.Header.Get("E2b-Sandbox-Id")
	g.Locked(func() {
		g.Commands = append(g.Commands, body)
		g.Keys = append(g.Keys, r.Header.Get("Idempotency-Key"))
	})
	w.Header().Set("X-Process-Id", ProcessID)
	fmt.Fprintf(w, `{"type":"start","pid":7,"process":%q}`+"\n", ProcessID)
}

const (
	fakeProcess = `{"process":"01hzz-iabc","sandbox":"iabc","pid":7,"cmd":"/bin/bash","args":["-l","-c","sleep 9"],"state":"running","started_at":"2026-01-02T03:04:05Z","exit_code":null}`
	fakeEndedID = "02-iabc"
	fakeEnded   = `{"process":"` + fakeEndedID + `","pid":8,"cmd":"true","args":[],"state":"ended","exit_code":3,"cause":"exited"}`
)

// processes lists a running process and, on the next page, one that ended.
func (g *Gateway) processes(w http.ResponseWriter, r *http.Request) {
	g.Locked(func() { g.Lists++ })
	q := r.URL.Query()
	page := fakeProcess
	switch {
	case q.Get("nextToken") != "":
		page = fakeEnded
	case q.Get("state") == "" && q.Get("prefix") == "" && q.Get("limit") == "":
		w.Header().Set("X-Next-Token", "ended")
	case q.Get("state") == "" && strings.HasPrefix(fakeEndedID, q.Get("prefix")):
		page += "," + fakeEnded
	}
	fmt.Fprint(w, "["+page+"]")
}

func (g *Gateway) process(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != ProcessID {
		respondError(w, 404, "process not found")
		return
	}
	g.Mu.Lock()
	defer g.Mu.Unlock()
	if g.PTY {
		fmt.Fprint(w, strings.Replace(fakeProcess, "{", `{"pty":{"cols":80,"rows":24},`, 1))
		return
	}
	fmt.Fprint(w, fakeProcess)
}

func (g *Gateway) events(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != ProcessID {
		respondError(w, 404, "process not found")
		return
	}
	g.Locked(func() {
		g.Afters = append(g.Afters, r.URL.Query().Get("after"))
		g.Order = append(g.Order, "events "+r.URL.Query().Get("after"))
	})
	at, _ := strconv.Atoi(r.URL.Query().Get("after"))
	if r.URL.Query().Get("after") == "now" {
		g.Locked(func() { at = len(g.record) })
	}
	w.Header().Set("X-Record-After", strconv.Itoa(at))
	if at+1 < g.First {
		w.WriteHeader(http.StatusGone)
		fmt.Fprintf(w, `{"code":410,"message":"retention has passed","first":%d}`, g.First)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	fmt.Fprintln(w, `{"type":"keepalive","after":0}`)
	for {
		g.Mu.Lock()
		grown, have := g.grown, len(g.record)
		var line string
		cut := false
		if at < have {
			line = g.record[at]
			at++
			cut = g.CutAfter[at]
			delete(g.CutAfter, at)
			g.dead = cut && g.Mortal
		}
		g.Mu.Unlock()
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
func (g *Gateway) tail(w http.ResponseWriter, r *http.Request) {
	g.Locked(func() { g.Afters = append(g.Afters, r.URL.Query().Get("after")) })
	for i, line := range g.record {
		fmt.Fprintf(w, `{"record":"process","rev":9,"tenant":"t","sandbox":"iabc","process":%q,"host":"h","seq":%d,"time":"2026-01-02T03:04:%02dZ",%s`+"\n", ProcessID, i+1, i, line[1:])
		if g.CutAfter[i+1] {
			delete(g.CutAfter, i+1)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	if r.URL.Query().Get("follow") == "0" {
		return
	}
	fmt.Fprintln(w, `{"type":"error","error_code":"denied","message":"enough"}`)
}

func (g *Gateway) input(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	eof := r.URL.Query().Get("eof") == "1"
	g.Mu.Lock()
	g.Stdin.Write(b)
	g.EOF = g.EOF || eof
	f := g.OnInput
	g.Mu.Unlock()
	if f != nil {
		f(b, eof)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) signal(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != ProcessID {
		respondError(w, 404, "process not found")
		return
	}
	var body struct{ Signal int }
	json.NewDecoder(r.Body).Decode(&body)
	g.Locked(func() { g.Signals = append(g.Signals, body.Signal) })
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) resize(w http.ResponseWriter, r *http.Request) {
	var s client.Winsize
	json.NewDecoder(r.Body).Decode(&s)
	g.Locked(func() {
		g.sizes = append(g.sizes, s)
		g.Order = append(g.Order, fmt.Sprintf("size %dx%d", s.Cols, s.Rows))
	})
	w.WriteHeader(http.StatusNoContent)
}

// stat and putFile implement the data plane of the fake gateway.
func (g *Gateway) stat(w http.ResponseWriter, r *http.Request) {
	var body struct{ Path string }
	json.NewDecoder(r.Body).Decode(&body)
	switch body.Path {
	case "/file":
		fmt.Fprint(w, `{"entry":{"type":"FILE_TYPE_FILE","mode":416,"size":"7"}}`)
	case "/dir":
		fmt.Fprint(w, `{"entry":{"type":"FILE_TYPE_DIRECTORY","mode":493}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"it does not exist"}`)
	}
}

func (g *Gateway) putFile(_ http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	q := r.URL.Query()
	g.Locked(func() { g.Files = map[string]string{q.Get("path") + " " + q.Get("mode"): string(b)} })
}

// tunnel is a port on which a server counts the bytes that it receives.
func (g *Gateway) tunnel(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.t.Error(err)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	n, _ := io.Copy(io.Discard, buf)
	fmt.Fprintf(conn, "port %s got %d", r.PathValue("port"), n)
}
