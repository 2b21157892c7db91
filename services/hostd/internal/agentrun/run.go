package agentrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
)

// Files of an agent.
const (
	ResultFile = "/tmp/result.txt"
	ExitFile   = "/tmp/agent.exit"
)

// outputGrace is how long processes that the program leaves behind may write to the result.
const outputGrace = time.Second

// Limits of the time that a process waits for the agent.
const (
	readyTimeout  = 4 * time.Second
	readyInterval = 5 * time.Millisecond
)

// control is the descriptor of the supervisor that is closed when the agent's process ends.
const control = 3

var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// Run runs a part of an agent and returns its exit code. values are the configuration, which is in the
// file config, and env is the environment of the program.
func Run(part bootstrap.Agency, config string, values map[string]string, env []string, stderr io.Writer) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // caught, not ignored, because children inherit that
	a := agent{config: config, result: ResultFile, exit: ExitFile, signals: signals, stdout: os.Stdout, stderr: stderr}
	switch part {
	case bootstrap.AwaitsAgent:
		return a.await(readyTimeout)
	case bootstrap.WaitsForInput:
		return a.finish(signalCode(number(<-signals)))
	case bootstrap.SupervisesAgent:
		return a.supervise(values, env, os.NewFile(control, "control"))
	default:
		return a.front()
	}
}

// agent is one process of an agent.
type agent struct {
	config         string // file
	result, exit   string // files
	signals        <-chan os.Signal
	stdout, stderr io.Writer
}

// readyName is the name of the file beside the configuration that exists as soon as the agent handles signals.
const readyName = "agent.ready"

func (a *agent) readyFile() string { return filepath.Join(filepath.Dir(a.config), readyName) }

// ready reports to [agent.await] that signals are handled.
func (a *agent) ready() {
	if err := write(a.readyFile(), ""); err != nil {
		fmt.Fprintf(a.stderr, "e2a-agent: %v\n", err)
	}
}

// await waits until the agent handles signals, or has ended.
func (a *agent) await(limit time.Duration) int {
	for end := time.Now().Add(limit); ; time.Sleep(readyInterval) {
		if _, err := os.Stat(a.readyFile()); err == nil {
			return 0
		}
		if time.Now().After(end) {
			return 1
		}
	}
}

// front runs the supervisor.
func (a *agent) front() int {
	a.clear()
	r, w, err := os.Pipe()
	if err != nil {
		return a.fail(notRun, err)
	}
	defer w.Close() // the process's end closes it if this does not
	cmd := exec.CommandContext(context.Background(), bootstrap.Program, bootstrap.Supervisor()...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	r.Close()
	if err != nil {
		return a.fail(notRun, err)
	}
	state := a.pass(cmd, cmd.Process.Pid, nil)
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return a.fail(signalCode(ws.Signal()), errors.New("the supervisor was killed"))
	}
	return state.ExitCode()
}

// supervise runs the program until it has ended. It kills the program when above ends.
func (a *agent) supervise(values map[string]string, env []string, above io.Reader) int {
	runtime.LockOSThread() // the program ends with the thread that started it
	a.ready()
	p, err := a.programOf(values)
	if err != nil {
		return a.fail(notFound, err)
	}
	for name, value := range variables(values) {
		env = append(env, name+"="+value)
	}
	result, err := os.OpenFile(a.result, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // every user of the sandbox may read it
	if err != nil {
		return a.fail(1, err)
	}
	defer result.Close()
	whole := &lenient{w: result}
	cmd := exec.CommandContext(context.Background(), p.argv[0], p.argv[1:]...) //nolint:gosec // the agent of the configuration
	cmd.Env, cmd.Stderr, cmd.WaitDelay, cmd.SysProcAttr = env, a.stderr, outputGrace, ownGroup()
	cmd.Stdout = io.MultiWriter(whole, &lenient{w: a.stdout})
	if p.stdin != "" {
		cmd.Stdin = strings.NewReader(p.stdin)
	}
	if err := cmd.Start(); err != nil {
		return a.fail(startCode(err), err)
	}
	gone := make(chan struct{})
	go func() {
		io.Copy(io.Discard, above) //nolint:errcheck // any end is one
		close(gone)
	}()
	code := exitCode(a.pass(cmd, -cmd.Process.Pid, gone))
	if err := errors.Join(whole.err, result.Close()); err != nil {
		return a.fail(max(code, 1), fmt.Errorf("the result is incomplete: %w", err))
	}
	return a.finish(code)
}

// pass waits for a process, and passes signals on to a process or a group. It kills that when gone is
// closed.
func (a *agent) pass(cmd *exec.Cmd, to int, gone <-chan struct{}) *os.ProcessState {
	ended := make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // its state has the result
		close(ended)
	}()
	for {
		select {
		case <-ended:
			return cmd.ProcessState
		case s := <-a.signals:
			syscall.Kill(to, number(s))
		case <-gone:
			syscall.Kill(to, syscall.SIGKILL)
			gone = nil
		}
	}
}

// clear removes the files of an earlier agent, which a snapshot or a template may have.
func (a *agent) clear() {
	os.Remove(a.result)
	os.Remove(a.exit)
}

// fail reports why an agent failed, and finishes with a code.
func (a *agent) fail(code int, err error) int {
	fmt.Fprintf(a.stderr, "e2a-agent: %v\n", err)
	return a.finish(code)
}

// finish writes the exit code, and returns it. A program that did not start has an empty result.
func (a *agent) finish(code int) int {
	defer a.ready()
	if f, err := os.OpenFile(a.result, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err == nil { //nolint:gosec // every user of the sandbox may read it
		f.Close()
	}
	if err := write(a.exit, strconv.Itoa(code)+"\n"); err != nil {
		fmt.Fprintf(a.stderr, "e2a-agent: write exit code: %v\n", err)
		return max(code, 1)
	}
	return code
}

// write replaces a file atomically.
func write(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".agent-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// lenient is a writer that accepts everything. It keeps the first error.
type lenient struct {
	w   io.Writer
	err error
}

func (l *lenient) Write(p []byte) (int, error) {
	if l.err == nil {
		_, l.err = l.w.Write(p)
	}
	return len(p), nil
}

func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return signalCode(ws.Signal())
	}
	return state.ExitCode()
}

func signalCode(s syscall.Signal) int { return 128 + int(s) }

// number returns a signal of this system.
func number(s os.Signal) syscall.Signal {
	n, _ := s.(syscall.Signal)
	return n
}
