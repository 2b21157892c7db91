package client

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
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Process is a process as the gateway shows it.
type Process struct {
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
	TraceID   string   `json:"trace_id,omitempty"`
	Killed    bool     `json:"killed"`
	PTY       *Winsize `json:"pty"`
}

// Status returns the state of a process, or how it ended.
func (p *Process) Status() string {
	switch {
	case p.State != "ended":
		return p.State
	case p.Signal != 0:
		return fmt.Sprintf("%s (signal %d)", p.Cause, p.Signal)
	case p.ExitCode == nil:
		return p.Cause
	}
	return fmt.Sprintf("exited %d", *p.ExitCode)
}

// CommandLine returns a process's command line, shortened to fit a table.
func (p *Process) CommandLine() string {
	const most = 60
	s := p.Cmd
	// The script of `sh -c` is more useful than the shell.
	if n := len(p.Args); n > 0 && (p.Args[0] == "-c" || n > 1 && p.Args[n-2] == "-c") {
		s = p.Args[n-1]
	} else if n > 0 {
		s += " " + strings.Join(p.Args, " ")
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// Winsize is the size of a terminal.
type Winsize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// Host is a host as the gateway shows it.
type Host struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Alive       bool     `json:"alive"`
	Epoch       uint64   `json:"epoch"`
	Drivers     []string `json:"drivers"`
	Isolation   []string `json:"isolations"`
	Capacity    int      `json:"capacity"`
	Sandboxes   int      `json:"sandboxes"`
	Undrainable int      `json:"undrainable"` // undrainable items of a draining host
	Processes   int      `json:"processes"`
	CPUs        int      `json:"cpus"`
	Load1       float64  `json:"load1"`
	Version     string   `json:"version"`
}

// DriverList returns a host's drivers, each with its isolation in parentheses.
func (h *Host) DriverList() string {
	out := make([]string, len(h.Drivers))
	for i, d := range h.Drivers {
		if out[i] = d; i < len(h.Isolation) {
			out[i] += "(" + h.Isolation[i] + ")"
		}
	}
	return strings.Join(out, ",")
}

// Status returns a host's state; for a draining host with the number of undrainable items.
func (h *Host) Status() string {
	switch {
	case h.State != "draining":
		return h.State
	case h.Undrainable == 0:
		return h.State + ", empty"
	}
	return fmt.Sprintf("%s, %d left", h.State, h.Undrainable)
}

// Hosts returns all hosts.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	var out struct {
		Hosts []Host `json:"hosts"`
	}
	_, err := c.Call(ctx, &Request{Method: "GET", Path: "/v1/hosts"}, &out)
	return out.Hosts, err
}

// SandboxSpec describes a sandbox to create.
type SandboxSpec struct {
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
	AutoResume *AutoResume       `json:"autoResume,omitempty"`
	Record     string            `json:"record,omitempty"`
	Redact     []string          `json:"redact,omitempty"`
	HardEnd    int64             `json:"hardEnd,omitempty"`        // seconds; 0: none
	Warning    int64             `json:"hardEndWarning,omitempty"` // seconds before HardEnd; 0: none
}

// AutoResume says whether traffic resumes a paused sandbox.
type AutoResume struct {
	Enabled bool `json:"enabled"`
}

// CreateSandbox creates a sandbox and reports the warnings of the gateway.
func (c *Client) CreateSandbox(ctx context.Context, spec SandboxSpec) (CreatedSandbox, error) {
	var out CreatedSandbox
	_, err := c.Call(ctx, &Request{Method: "POST", Path: "/sandboxes", JSON: spec}, &out)
	for _, w := range out.Warnings {
		if c.Warn != nil {
			c.Warn("warning: %s", w)
		}
	}
	return out, err
}

// SetTimeout makes a sandbox end after timeout.
func (c *Client) SetTimeout(ctx context.Context, sbx string, timeout time.Duration) error {
	body := map[string]int64{"timeout": Ceil(timeout, time.Second)}
	_, err := c.Call(ctx, &Request{Method: "POST", Path: SandboxPath(sbx) + "/timeout", JSON: body}, nil)
	return err
}

// RemoveSandbox ends a sandbox.
func (c *Client) RemoveSandbox(ctx context.Context, sbx string) error {
	_, err := c.Call(ctx, &Request{Method: "DELETE", Path: SandboxPath(sbx)}, nil)
	return err
}

// PauseSandbox pauses a sandbox.
func (c *Client) PauseSandbox(ctx context.Context, sbx string) error {
	_, err := c.Call(ctx, &Request{Method: "POST", Path: SandboxPath(sbx) + "/pause"}, nil)
	return err
}

// ResumeSandbox resumes a paused sandbox, which then runs for at least timeout.
func (c *Client) ResumeSandbox(ctx context.Context, sbx string, timeout time.Duration) error {
	body := map[string]int64{"timeout": Ceil(timeout, time.Second)}
	_, err := c.Call(ctx, &Request{Method: "POST", Path: "/v2" + SandboxPath(sbx) + "/connect", JSON: body}, nil)
	return err
}

// Command describes a process to start.
type Command struct {
	Cmd       string            `json:"cmd"`
	Args      []string          `json:"args,omitzero"` // nil: a shell runs Cmd
	Envs      map[string]string `json:"envs,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
	User      string            `json:"user,omitempty"`
	Tag       string            `json:"tag,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"`
	PTY       *Winsize          `json:"pty,omitempty"`
	TimeoutMS int64             `json:"timeout_ms"` // 0: none
	Record    string            `json:"record,omitempty"`
}

// StartTimeout is how long a start is retried: the idempotency key makes all attempts start
// one process.
const StartTimeout = 30 * time.Second

// Start runs cmd in a sandbox and returns the process's id. Callers read the record by
// that id, and not from the response, so that all output takes one path. start fails at
// once if all gateways are unreachable and none has ever answered.
func (c *Client) Start(ctx context.Context, sbx string, cmd *Command) (string, error) {
	key := newKey()
	until := time.Now().Add(StartTimeout)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		id, err := c.tryStart(ctx, sbx, key, cmd)
		if _, down := errors.AsType[*unreachableError](err); down && !c.answered.Load() {
			return "", err
		}
		if !Retryable(err) || time.Now().Add(wait).After(until) || !waiting.Sleep(ctx, wait) {
			return id, err
		}
	}
}

func newKey() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (c *Client) tryStart(ctx context.Context, sbx, key string, cmd *Command) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // drops the response; the process keeps running
	resp, err := c.Open(ctx, &Request{
		Method: "POST", Path: "/commands", JSON: cmd,
		Header: map[string]string{"E2b-Sandbox-Id": sbx, "Idempotency-Key": key},
	})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if id := resp.Header.Get("X-Process-Id"); id != "" {
		return id, nil
	}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return "", fmt.Errorf("start: %w", WithMessage(err))
		}
		var e struct {
			Type, Process, Message string
			Code                   string `json:"error_code"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return "", fmt.Errorf("start: %w", WithMessage(err))
		}
		switch {
		case e.Process != "":
			return e.Process, nil
		case e.Type == "error":
			return "", errors.New(e.Message)
		}
	}
}

// ProcessPath returns the path of a process, followed by verb.
func ProcessPath(id, verb string) string { return "/v1/processes/" + url.PathEscape(id) + verb }

// Process returns a process.
func (c *Client) Process(ctx context.Context, id string) (Process, error) {
	var out Process
	_, err := c.Call(ctx, &Request{Method: "GET", Path: ProcessPath(id, "")}, &out)
	return out, err
}

// ProcessQuery selects processes. A field that is empty selects all.
type ProcessQuery struct {
	Sandbox string
	Prefix  string // of the id
	States  string // separated by commas
}

// Processes returns the newest processes that q selects, and whether there are more. With all
// it reads the list page by page.
func (c *Client) Processes(ctx context.Context, q ProcessQuery, all bool) (found []Process, more bool, err error) {
	query := url.Values{}
	for name, v := range map[string]string{"sandbox": q.Sandbox, "prefix": q.Prefix, "state": q.States} {
		if v != "" {
			query.Set(name, v)
		}
	}
	for {
		var page []Process
		h, err := c.Call(ctx, &Request{Method: "GET", Path: "/v1/processes", Query: query}, &page)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page...)
		next := h.Get("X-Next-Token")
		if next == "" || !all {
			return found, next != "", nil
		}
		query.Set("nextToken", next)
	}
}

// Latest returns the process that started last.
func (c *Client) Latest(ctx context.Context) (Process, error) {
	var out []Process
	_, err := c.Call(ctx, &Request{Method: "GET", Path: "/v1/processes", Query: url.Values{"limit": {"1"}}}, &out)
	if err == nil && len(out) == 0 {
		err = errors.New("no process exists yet: start one with `millrace run`")
	}
	if err != nil {
		return Process{}, err
	}
	return out[0], nil
}

// Signal sends a signal to a process and its children.
func (c *Client) Signal(ctx context.Context, id string, sig int) error {
	_, err := c.Call(ctx, &Request{Method: "POST", Path: ProcessPath(id, "/signal"), JSON: map[string]int{"signal": sig}}, nil)
	return err
}

// Resize sets the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, id string, size Winsize) error {
	_, err := c.Call(ctx, &Request{Method: "POST", Path: ProcessPath(id, "/resize"), JSON: size}, nil)
	return err
}

// Input sends input to a process, then its end if eof.
func (c *Client) Input(ctx context.Context, id string, data []byte, eof bool) error {
	q := url.Values{}
	if eof {
		q.Set("eof", "1")
	}
	_, err := c.Call(ctx, &Request{Method: "POST", Path: ProcessPath(id, "/stdin"), Query: q, Body: data}, nil)
	return err
}

// Events opens the stream of a record's events.
func (c *Client) Events(ctx context.Context, id string, after uint64, follow bool) (*Lines, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "follow": {"0"}}
	if follow {
		q.Set("follow", "1")
	}
	return c.Lines(ctx, &Request{Method: "GET", Path: ProcessPath(id, "/events"), Query: q})
}

// SandboxPath returns the path of a sandbox.
func SandboxPath(id string) string { return "/sandboxes/" + url.PathEscape(id) }
