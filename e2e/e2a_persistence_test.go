package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// persisted is a message that a backend was sent.
type persisted struct {
	ID, From, Type, Data string
}

// persistenceBackend is an HTTPS server that keeps conversations, and fails as a test wants.
type persistenceBackend struct {
	t    *testing.T
	url  string
	auth string

	mu     sync.Mutex
	answer func(http.ResponseWriter, *http.Request) bool // whether the messages are accepted; nil: they are
	tries  int
	seen   map[string]bool
	got    []persisted
	bodies map[string]string // by idempotency key
}

func newPersistenceBackend(t *testing.T, ca *authority, auth string) *persistenceBackend {
	t.Helper()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ca.issue("backend", certFile, keyFile)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	b := &persistenceBackend{t: t, auth: auth, seen: make(map[string]bool), bodies: make(map[string]string)}
	srv := httptest.NewUnstartedServer(b)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	b.url = srv.URL + "/persist"
	return b
}

func (b *persistenceBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	var in struct {
		Conversation string `json:"conversation_id"`
		Events       []persisted
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		b.t.Errorf("%s: %v", raw, err)
	}
	if got := r.Header.Values("Authorization"); !slices.Equal(got, []string{b.auth}) {
		b.t.Errorf("Authorization %q", got)
	}
	if r.Method != http.MethodPut || r.URL.Path != "/persist/conversations/"+in.Conversation+"/events" {
		b.t.Errorf("%s %s", r.Method, r.URL)
	}
	b.mu.Lock()
	b.tries++
	answer, key := b.answer, r.Header.Get("Idempotency-Key")
	if was, ok := b.bodies[key]; ok && was != string(raw) {
		b.t.Errorf("the key %q has two bodies", key)
	}
	b.bodies[key] = string(raw)
	b.mu.Unlock()
	if answer != nil && !answer(w, r) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range in.Events {
		if !b.seen[m.ID] {
			b.seen[m.ID] = true
			b.got = append(b.got, m)
		}
	}
}

// answers sets how the next requests are answered, and returns the number of requests so far.
func (b *persistenceBackend) answers(f func(http.ResponseWriter, *http.Request) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
	return b.tries
}

// tried waits for the next request after a number of them.
func (b *persistenceBackend) tried(after int) {
	b.t.Helper()
	if !rig.Poll(time.Minute, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.tries > after
	}) {
		b.t.Fatal("no request")
	}
}

// want waits until the backend has both sides of commands and their output, and nothing else.
func (b *persistenceBackend) want(commands ...string) {
	b.t.Helper()
	var want []string
	for _, c := range commands {
		want = append(want, "client exec "+c, "runtime stdout "+strings.TrimPrefix(c, "echo ")+"\n", "runtime exit ")
	}
	var got []string
	if !rig.Poll(time.Minute, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		got = nil
		for _, m := range b.got {
			var f struct{ Type, Command, Data string }
			must(b.t, json.Unmarshal([]byte(m.Data), &f))
			got = append(got, m.From+" "+f.Type+" "+f.Command+f.Data)
		}
		return len(got) >= len(want)
	}) || !slices.Equal(got, want) {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

// E-048, E-049: each message of a conversation reaches its backend in order, while the backend fails in
// every way, and the reaper that sends and a gateway are killed. The header is in no log and no response.
func TestE2APersistence(t *testing.T) {
	t.Parallel()
	const auth = "ApiKey  planted=persistence/secret, x"
	ca := newAuthority(t)
	b := newPersistenceBackend(t, ca, auth)
	s := newTopology(t, rig.Topology{Gateways: 2, Reapers: 2, Env: []string{"SSL_CERT_FILE=" + ca.file, "MILLRACE_OUTBOUND_ALLOW=127.0.0.1/32"}})
	one, two := s.APIs[0], s.APIs[1]
	body := strings.TrimSuffix(conversationBody, "}") + `,"persistence_url":"` + b.url + `","persistence_auth_header":"` + auth + `"}`

	// The backend fails in every way.
	forbidden, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer forbidden.Close()
	go func() {
		if c, err := forbidden.Accept(); err == nil {
			t.Error("a redirect to an address that is not allowed was followed")
			c.Close()
		}
	}()
	failures := []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+forbidden.Addr().String()+r.URL.Path, http.StatusPermanentRedirect)
		},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	}
	var mu sync.Mutex
	b.answers(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		if len(failures) == 0 {
			mu.Unlock()
			return true
		}
		fail := failures[0]
		failures = failures[1:]
		mu.Unlock()
		fail(w, r)
		return false
	})
	c := converse(t, one, "/v1/sessions", body, 201)
	k := talkTo(t, one, &c, "")
	k.run("echo one")
	k.run("echo two")
	b.want("echo one", "echo two")

	// It is slow, and the reapers that send are killed, and the gateway.
	before := b.answers(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return false
	})
	k.run("echo three")
	b.tried(before)
	s.Program("reaper-1").Kill9()
	s.Program("reaper-2").Kill9()
	s.Program("gateway-1").Kill9()
	k = talkTo(t, two, &c, "")
	k.run("echo four")
	b.answers(nil)
	must(t, s.Program("reaper-2").Restart())
	b.want("echo one", "echo two", "echo three", "echo four")

	// A resume continues it in another sandbox.
	c = converse(t, two, "/v1/sessions/resume", resumption(c.ID), 200)
	k = talkTo(t, two, &c, "")
	k.run("echo five")
	b.want("echo one", "echo two", "echo three", "echo four", "echo five")

	seen := s.Dump() + two.Want(t, 200, "GET", "/v1/sandboxes/"+c.VM, nil, "Authorization", "Bearer "+two.Key).String()
	if strings.Contains(seen, "planted=persistence") {
		t.Error("the header is shown")
	}
	two.Want(t, 400, "POST", "/v1/sessions", json.RawMessage(strings.Replace(body, "127.0.0.1", "127.0.0.2", 1)), "Authorization", "Bearer "+two.Key)
	two.Want(t, 200, "DELETE", "/v1/sandboxes/"+c.VM, nil, "Authorization", "Bearer "+two.Key)
}
