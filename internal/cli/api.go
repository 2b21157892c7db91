package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// processInfo is a process as the gateway shows it.
type processInfo struct {
	ID        string   `json:"process"`
	Sandbox   string   `json:"sandbox"`
	Host      string   `json:"host"`
	PID       uint32   `json:"pid"`
	Cmd       string   `json:"cmd"`
	Args      []string `json:"args"`
	State     string   `json:"state"`
	StartedAt moment   `json:"started_at"`
	EndedAt   moment   `json:"ended_at"`
	ExitCode  *int     `json:"exit_code"`
	Signal    int      `json:"signal"`
	Cause     string   `json:"cause"`
	Killed    bool     `json:"killed"`
	PTY       *winsize `json:"pty"`
}

type winsize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// hostInfo is a host as the gateway shows it.
type hostInfo struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Alive       bool     `json:"alive"`
	Epoch       uint64   `json:"epoch"`
	Drivers     []string `json:"drivers"`
	Isolation   []string `json:"isolations"`
	Capacity    int      `json:"capacity"`
	Sandboxes   int      `json:"sandboxes"`
	Undrainable int      `json:"held"` // undrainable items of a draining host
	Processes   int      `json:"processes"`
	CPUs        int      `json:"cpus"`
	Load1       float64  `json:"load1"`
	Version     string   `json:"version"`
}

func (c *client) hosts(ctx context.Context) ([]hostInfo, error) {
	var out struct {
		Hosts []hostInfo `json:"hosts"`
	}
	_, err := c.call(ctx, &request{method: "GET", path: "/v1/hosts"}, &out)
	return out.Hosts, err
}

// sandboxSpec describes a sandbox to create.
type sandboxSpec struct {
	TemplateID string            `json:"templateID"`
	Timeout    int64             `json:"timeout"` // seconds
	Metadata   map[string]string `json:"metadata,omitempty"`
	EnvVars    map[string]string `json:"envVars,omitempty"`
	Secure     bool              `json:"secure"`
	CPUs       float64           `json:"cpuCount,omitempty"`
	MemoryMB   uint32            `json:"memoryMB,omitempty"`
	DiskMB     uint32            `json:"diskSizeMB,omitempty"`
	PIDs       uint32            `json:"pids,omitempty"`
	Isolation  string            `json:"isolation,omitempty"`
	AutoPause  bool              `json:"autoPause,omitempty"`
	AutoResume *autoResume       `json:"autoResume,omitempty"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

func (c *client) createSandbox(ctx context.Context, spec sandboxSpec) (createdSandbox, error) {
	var out createdSandbox
	_, err := c.call(ctx, &request{method: "POST", path: "/sandboxes", json: spec}, &out)
	for _, w := range out.Warnings {
		if c.notef != nil {
			c.notef("warning: %s", w)
		}
	}
	return out, err
}

func (c *client) setTimeout(ctx context.Context, sbx string, timeout time.Duration) error {
	body := map[string]int64{"timeout": ceil(timeout, time.Second)}
	_, err := c.call(ctx, &request{method: "POST", path: sandboxPath(sbx) + "/timeout", json: body}, nil)
	return err
}

func (c *client) removeSandbox(ctx context.Context, sbx string) error {
	_, err := c.call(ctx, &request{method: "DELETE", path: sandboxPath(sbx)}, nil)
	return err
}

func (c *client) pauseSandbox(ctx context.Context, sbx string) error {
	_, err := c.call(ctx, &request{method: "POST", path: sandboxPath(sbx) + "/pause"}, nil)
	return err
}

// resumeSandbox resumes a paused sandbox, which then runs for at least timeout.
func (c *client) resumeSandbox(ctx context.Context, sbx string, timeout time.Duration) error {
	body := map[string]int64{"timeout": ceil(timeout, time.Second)}
	_, err := c.call(ctx, &request{method: "POST", path: "/v2" + sandboxPath(sbx) + "/connect", json: body}, nil)
	return err
}

// command describes a process to start.
type command struct {
	Cmd       string            `json:"cmd"`
	Args      []string          `json:"args,omitzero"` // nil: a shell runs Cmd
	Envs      map[string]string `json:"envs,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	Tag       string            `json:"tag,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"`
	PTY       *winsize          `json:"pty,omitempty"`
	TimeoutMS int64             `json:"timeout_ms"` // 0: none
}

// startTimeout is how long a start is retried: the idempotency key makes all attempts start
// one process.
const startTimeout = 30 * time.Second

// start runs cmd in a sandbox and returns the process's id. Callers read the record by
// that id, and not from the response, so that all output takes one path. start fails at
// once if all gateways are unreachable and none has ever answered.
func (c *client) start(ctx context.Context, sbx string, cmd *command) (string, error) {
	key := newKey()
	until := time.Now().Add(startTimeout)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		id, err := c.tryStart(ctx, sbx, key, cmd)
		if _, down := errors.AsType[*unreachableError](err); down && !c.answered.Load() {
			return "", err
		}
		if !retryable(err) || time.Now().Add(wait).After(until) || !pause(ctx, wait) {
			return id, err
		}
	}
}

func newKey() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

func (c *client) tryStart(ctx context.Context, sbx, key string, cmd *command) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // drops the response; the process keeps running
	resp, err := c.open(ctx, &request{
		method: "POST", path: "/commands", json: cmd,
		header: map[string]string{"E2b-Sandbox-Id": sbx, "Idempotency-Key": key},
	})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // the rest is not needed
	if id := resp.Header.Get("X-Process-Id"); id != "" {
		return id, nil
	}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return "", fmt.Errorf("start: %w", withMessage(err))
		}
		var e struct {
			Type, Process, Message string
			Code                   string `json:"error_code"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return "", fmt.Errorf("start: %w", withMessage(err))
		}
		switch {
		case e.Process != "":
			return e.Process, nil
		case e.Type == "error":
			return "", errors.New(e.Message)
		}
	}
}

func processPath(id, verb string) string { return "/v1/processes/" + url.PathEscape(id) + verb }

func (c *client) process(ctx context.Context, id string) (processInfo, error) {
	var out processInfo
	_, err := c.call(ctx, &request{method: "GET", path: processPath(id, "")}, &out)
	return out, err
}

func (c *client) processes(ctx context.Context, sbx string) ([]processInfo, error) {
	q := url.Values{}
	if sbx != "" {
		q.Set("sandbox", sbx)
	}
	var out []processInfo
	_, err := c.call(ctx, &request{method: "GET", path: "/v1/processes", query: q}, &out)
	return out, err
}

// latest returns the process that started last.
func (c *client) latest(ctx context.Context) (processInfo, error) {
	var out []processInfo
	_, err := c.call(ctx, &request{method: "GET", path: "/v1/processes", query: url.Values{"limit": {"1"}}}, &out)
	if err == nil && len(out) == 0 {
		err = errors.New("no process exists yet: start one with `millrace run`")
	}
	if err != nil {
		return processInfo{}, err
	}
	return out[len(out)-1], nil
}

func (c *client) signal(ctx context.Context, id string, sig int) error {
	_, err := c.call(ctx, &request{method: "POST", path: processPath(id, "/signal"), json: map[string]int{"signal": sig}}, nil)
	return err
}

func (c *client) resize(ctx context.Context, id string, size winsize) error {
	_, err := c.call(ctx, &request{method: "POST", path: processPath(id, "/resize"), json: size}, nil)
	return err
}

func (c *client) input(ctx context.Context, id string, data []byte, eof bool) error {
	q := url.Values{}
	if eof {
		q.Set("eof", "1")
	}
	_, err := c.call(ctx, &request{method: "POST", path: processPath(id, "/stdin"), query: q, body: data}, nil)
	return err
}

// events opens the stream of a record's events.
func (c *client) events(ctx context.Context, id string, after uint64, follow bool) (*lines, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "follow": {"0"}}
	if follow {
		q.Set("follow", "1")
	}
	return c.lines(ctx, &request{method: "GET", path: processPath(id, "/events"), query: q})
}
