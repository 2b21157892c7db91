package rig

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// API is a client of one gateway. It is safe for concurrent use.
type API struct {
	URL    string
	Key    string
	Client *http.Client // default http.DefaultClient
	made   *made        // sandboxes of Create; may be nil
}

// made records sandboxes, to find what remains of them.
type made struct {
	mu  sync.Mutex
	ids []string
}

func (m *made) add(id string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids = append(m.ids, id)
}

func (m *made) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ids)
}

// TLS returns the client's settings of TLS; nil for the default ones.
func (a *API) TLS() *tls.Config {
	if a.Client == nil {
		return nil
	}
	return a.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
}

// HTTP returns the client for requests.
func (a *API) HTTP() *http.Client { return cmp.Or(a.Client, http.DefaultClient) }

// Answer is the response to a request that is not a stream.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// String returns the response for a failed test.
func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// callTimeout bounds a request that is not a stream.
const callTimeout = 3 * time.Minute

// Call sends a request; body is bytes, a string, nil, or another value as JSON. Headers are
// names and values in turn, and override the default ones.
func (a *API) Call(method, path string, body any, headers ...string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	resp, err := a.open(ctx, method, path, body, headers...)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, raw}, err
}

// Do is Call for tests.
func (a *API) Do(t testing.TB, method, path string, body any, headers ...string) Answer {
	t.Helper()
	ans, err := a.Call(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return ans
}

// Want is Do, and fails the test unless the response has the status.
func (a *API) Want(t testing.TB, status int, method, path string, body any, headers ...string) Answer {
	t.Helper()
	ans := a.Do(t, method, path, body, headers...)
	if ans.Status != status {
		t.Fatalf("%s %s: %v, want %d", method, path, ans, status)
	}
	return ans
}

func (a *API) open(ctx context.Context, method, path string, body any, headers ...string) (*http.Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Api-Key", a.Key)
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	return a.HTTP().Do(req)
}

// Decode decodes a JSON response.
func (a Answer) Decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, into); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
}

// Sandbox is a sandbox in the response to create.
type Sandbox struct {
	ID         string `json:"sandboxID"`
	TemplateID string `json:"templateID"`
	Token      string `json:"envdAccessToken"`
	Version    string `json:"envdVersion"`
}

// Create creates a sandbox with a timeout of half an hour, since parallel subtests wait for
// minutes, unless fields (names and values in turn) have another one. It removes the sandbox
// at the end of the test.
func (a *API) Create(t testing.TB, fields ...any) Sandbox {
	t.Helper()
	body := map[string]any{"templateID": "base", "timeout": 1800}
	for i := 0; i+1 < len(fields); i += 2 {
		body[fmt.Sprint(fields[i])] = fields[i+1]
	}
	var s Sandbox
	a.Want(t, http.StatusCreated, http.MethodPost, "/sandboxes", body).Decode(t, &s)
	a.made.add(s.ID)
	t.Cleanup(func() {
		ans, err := a.Call(http.MethodDelete, "/sandboxes/"+s.ID, nil)
		if err == nil && ans.Status != http.StatusNoContent && ans.Status != http.StatusNotFound {
			t.Errorf("kill sandbox %s: %v", s.ID, ans)
		}
	})
	return s
}

// Kill removes an existing sandbox.
func (a *API) Kill(t testing.TB, id string) {
	t.Helper()
	a.Want(t, http.StatusNoContent, http.MethodDelete, "/sandboxes/"+id, nil)
}

// KillAll removes all sandboxes, and reports whether the gateway responded.
func (a *API) KillAll() bool {
	ans, err := a.Call(http.MethodGet, "/sandboxes", nil)
	if err != nil || ans.Status != http.StatusOK {
		return false
	}
	var all []Sandbox
	if json.Unmarshal(ans.Body, &all) != nil {
		return false
	}
	for _, s := range all {
		if _, err := a.Call(http.MethodDelete, "/sandboxes/"+s.ID, nil); err != nil {
			return false
		}
	}
	return true
}

// AliveHosts returns the number of hosts that accept sandboxes.
func (a *API) AliveHosts() int {
	ans, err := a.Call(http.MethodGet, "/v1/hosts", nil)
	var b struct {
		Hosts []struct {
			State    string `json:"state"`
			Capacity int    `json:"capacity"`
		} `json:"hosts"`
	}
	if err != nil || json.Unmarshal(ans.Body, &b) != nil {
		return 0
	}
	n := 0
	for _, h := range b.Hosts {
		if h.State == "alive" && h.Capacity > 0 {
			n++
		}
	}
	return n
}

// Metrics returns the samples of GET /metrics by name and labels.
func (a *API) Metrics(t testing.TB) map[string]float64 {
	t.Helper()
	out, err := ParseMetrics(a.Want(t, http.StatusOK, http.MethodGet, "/metrics", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// seriesSuffix ends the names of the series of a histogram or summary.
var seriesSuffix = regexp.MustCompile("_(bucket|sum|count)$")

// ParseMetrics parses Prometheus's text format strictly.
func ParseMetrics(raw []byte) (map[string]float64, error) {
	out := map[string]float64{}
	types := map[string]string{}
	for l := range strings.Lines(string(raw)) {
		l = strings.TrimSuffix(l, "\n")
		if rest, ok := strings.CutPrefix(l, "# TYPE "); ok {
			name, typ, _ := strings.Cut(rest, " ")
			types[name] = typ
			continue
		}
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		i := strings.LastIndexByte(l, ' ')
		var v float64
		if i < 0 {
			return nil, fmt.Errorf("metrics: line %q", l)
		}
		if _, err := fmt.Sscan(l[i+1:], &v); err != nil {
			return nil, fmt.Errorf("metrics: line %q: %w", l, err)
		}
		family, _, _ := strings.Cut(l[:i], "{")
		if types[family] == "" && types[seriesSuffix.ReplaceAllString(family, "")] == "" {
			return nil, fmt.Errorf("metrics: %q has no type", family)
		}
		if _, twice := out[l[:i]]; twice {
			return nil, fmt.Errorf("metrics: %q twice", l[:i])
		}
		out[l[:i]] = v
	}
	return out, nil
}
