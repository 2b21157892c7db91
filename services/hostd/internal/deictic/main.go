package deictic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

// Exit codes.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitTerminated = 128 + int(syscall.SIGTERM)
)

// Causes of an early end. A turn that the client interrupts is over. One that is terminated with its sandbox
// continues when the conversation does.
var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = errors.New("terminated")
)

const (
	memoryLimit = 12 << 20 // from which on the collector works harder
	maxPrompt   = 1 << 20
)

// Main runs the agent and returns its exit code. args are the path of env.json and, for a turn of a
// conversation, [bootstrap.AgentTurn]: then the prompt is read from stdin, and without one an interrupted
// turn is continued.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) < 1 || len(args) > 2 || len(args) == 2 && args[1] != bootstrap.AgentTurn {
		fmt.Fprintf(stderr, "%s: unexpected arguments %q\n", bootstrap.AgentArg, args)
		return exitUsage
	}
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(50)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that is gone must not end a turn
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { // it ends with the process
		cause := errTerminated
		if <-signals == syscall.SIGINT {
			cause = errInterrupted
		}
		cancel(cause)
	}()
	if len(args) == 2 {
		syscall.CloseOnExec(bootstrap.AgentControl)
		control := os.NewFile(bootstrap.AgentControl, "control")
		go func() { // it ends with the process
			if n, _ := control.Read(make([]byte, 1)); n == 1 {
				cancel(errInterrupted)
			}
		}()
	}
	p := &program{config: config(args[0]), environ: os.Environ(), client: llm.NewHTTP(transport(config(args[0]).roots())), stdin: stdin, stdout: stdout, stderr: stderr}
	if len(args) == 2 {
		return p.turn(ctx)
	}
	return p.once(ctx)
}

// transport returns a transport that trusts roots; nil: those of the system.
func transport(roots *x509.CertPool) *http.Transport {
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConns:        1,
		IdleConnTimeout:     time.Minute,
		ReadBufferSize:      16 << 10,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// program is a run of the agent.
type program struct {
	config         config
	environ        []string
	client         *http.Client
	home           string     // empty: that of the environment
	desktop        useDesktop // nil: that of the sandbox, if it has one
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (p *program) warn(format string, args ...any) {
	fmt.Fprintf(p.stderr, "%s: %s\n", bootstrap.AgentArg, fmt.Sprintf(format, args...))
}

// once runs the task of env.json. Without one it waits for the end of the sandbox.
func (p *program) once(ctx context.Context) int {
	values, err := p.config.read()
	if err != nil {
		p.warn("read the configuration: %v", err)
		return exitUsage
	}
	if values[keyTask] == "" {
		<-ctx.Done()
		return 0
	}
	lead, err := p.team(values, progress{p.stderr})
	if err != nil {
		p.warn("%v", err)
		return exitUsage
	}
	h := &history{messages: []llm.Message{{Role: llm.User, Text: values[keyTask]}}}
	last, err := lead.run(ctx, h)
	if last != "" {
		fmt.Fprintln(p.stdout, last)
	}
	switch {
	case ctx.Err() != nil:
		p.warn("interrupted")
		return exitTerminated
	case err != nil:
		p.warn("%v", err)
		return exitFailed
	}
	return 0
}

// turn runs a turn of a conversation.
func (p *program) turn(ctx context.Context) int {
	out := &frames{w: p.stdout, model: func() string { e, _ := p.config.endpoint(); return e.Model }}
	status, err := p.converse(ctx, out)
	if status == "" && err == nil {
		return 0 // there was nothing to continue
	}
	end := &frame{Type: "turn_end", Status: status}
	if err != nil {
		end.Status, end.Error = statusFailed, err.Error()
	}
	out.send(end)
	if end.Status == statusFailed {
		return exitFailed
	}
	return 0
}

func (p *program) converse(ctx context.Context, out *frames) (status string, err error) {
	prompt, err := io.ReadAll(io.LimitReader(p.stdin, maxPrompt+1))
	if err != nil || len(prompt) > maxPrompt {
		return "", fmt.Errorf("the prompt has more than %d bytes", maxPrompt)
	}
	values, err := p.config.read()
	if err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	h, err := openHistory(HistoryFile(p.homeDir()))
	if err != nil {
		return "", fmt.Errorf("read the record of the conversation: %w", err)
	}
	if len(prompt) == 0 && !h.open {
		return "", nil
	}
	lead, err := p.team(values, out)
	if err != nil {
		return "", err
	}
	if len(prompt) > 0 {
		if err := h.add(llm.Message{Role: llm.User, Text: text(prompt)}); err != nil {
			return "", fmt.Errorf("record the turn: %w", err)
		}
	}
	_, err = lead.run(ctx, h)
	status = statusCompleted
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		status = statusInterrupted
	case ctx.Err() != nil:
		return statusInterrupted, nil //nolint:nilerr // the turn stays open in the record
	case err != nil:
		status = statusFailed
	}
	if status != statusFailed {
		err = nil
	}
	return status, errors.Join(err, h.end(status))
}

// HistoryFile returns the path of the record of a conversation.
func HistoryFile(home string) string { return filepath.Join(home, bootstrap.AgentHistory) }

func (p *program) homeDir() string {
	if p.home != "" {
		return p.home
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/"
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return "/"
	}
	return home
}

// team returns the agent that gets the prompt.
func (p *program) team(values map[string]string, out listener) (*agent, error) {
	specs, err := parseApp(values[keyApp])
	if err != nil {
		return nil, err
	}
	if _, err := endpointOf(values); err != nil {
		return nil, err
	}
	dir := p.homeDir()
	if info, err := os.Stat("/workspace"); err == nil && info.IsDir() && p.home == "" {
		dir = "/workspace"
	}
	var s *screen
	switch {
	case p.desktop != nil:
		s = &screen{do: p.desktop, captured: out.captured}
	case hasDesktop(p.environ, values):
		d := desktop.New(desktop.Config{Environ: p.environ, Shared: true, Setting: func(name string) string { return p.setting(values, name) }})
		s = &screen{do: d.Do, captured: out.captured}
	}
	t := &team{
		specs: specs, model: &remote{client: p.client, config: p.config, warn: p.warn}, out: out, warn: p.warn, dir: dir,
		box: &toolbox{
			screen: s,
			files:  &files{dir: dir, roots: rootsOf(dir, p.homeDir())},
			shell: &shell{dir: dir, environ: func() (env, tooLarge []string) {
				now, err := p.config.read()
				if err != nil {
					now = values
				}
				return environ(p.environ, now)
			}},
		},
	}
	return t.lead(), nil
}

// setting returns the current value of a variable: of the configuration, at least of values, or of the
// environment.
func (p *program) setting(values map[string]string, name string) string {
	if now, err := p.config.read(); err == nil {
		values = now
	}
	if v, ok := values[name]; ok {
		return v
	}
	for _, v := range p.environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// rootsOf returns the directories for files, without the root of the file system.
func rootsOf(dirs ...string) []string {
	out := []string{}
	for _, d := range append(dirs, "/tmp") {
		if d != "/" {
			out = append(out, d)
		}
	}
	return out
}

// remote asks the model of the configuration.
type remote struct {
	client *http.Client
	config config
	warn   func(string, ...any)
}

// keyWait is the time that a key that was refused has to be replaced.
const keyWait = 10 * time.Second

func (m *remote) send(ctx context.Context, r *llm.Request, text func(string)) (llm.Answer, error) {
	var used llm.Endpoint
	c := &llm.Client{
		HTTP: m.client, Text: text,
		Endpoint: func() (e llm.Endpoint, err error) {
			used, err = m.config.endpoint()
			return used, err
		},
		Retry: func(err error, d time.Duration) { m.warn("%v; again in %s", err, d.Round(time.Millisecond)) },
	}
	for {
		a, err := c.Send(ctx, r)
		var e *llm.Error
		if !errors.As(err, &e) || !e.Unauthorized() || !m.replaced(ctx, used.Key) {
			return a, err
		}
	}
}

// replaced waits for another key in the configuration.
func (m *remote) replaced(ctx context.Context, key string) bool {
	for end := time.Now().Add(keyWait); time.Now().Before(end); {
		if e, err := m.config.endpoint(); err == nil && e.Key != key {
			return true
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	return false
}
