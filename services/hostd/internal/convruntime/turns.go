package convruntime

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/frame"
)

// maxPrompts limits the prompts that wait for the turn before them.
const maxPrompts = 16

// turns runs the agent: a process for each turn, one after another. Between turns there is none, and what
// it has to remember is in its record.
type turns struct {
	config  string // path of the configuration
	environ []string
	out     *output
	log     io.Writer

	queue chan string // prompts; an empty one continues a turn that was interrupted
	all   sync.WaitGroup
	first sync.Once

	mu      sync.Mutex
	process *os.Process // of the current turn
}

func newTurns(dir directory, environ []string, out *output, log io.Writer) *turns {
	t := &turns{config: filepath.Join(string(dir), bootstrap.EnvFile), environ: environ, out: out, log: log, queue: make(chan string, maxPrompts)}
	t.all.Go(func() {
		for prompt := range t.queue {
			if err := t.run(prompt); err != nil {
				t.end("failed", err.Error())
			}
		}
	})
	return t
}

// wait waits for all turns. None is started afterwards.
func (t *turns) wait() {
	close(t.queue)
	t.all.Wait()
}

// message is a client's message for the agent.
type message struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// take handles a text frame for the agent, and reports whether it is one.
func (t *turns) take(text []byte) bool {
	var m message
	if json.Unmarshal(text, &m) != nil {
		return false
	}
	switch {
	case m.Type == "prompt" && m.Text != nil && strings.TrimSpace(*m.Text) != "":
		select {
		case t.queue <- *m.Text:
		default:
			t.end("failed", fmt.Sprintf("more than %d prompts wait", maxPrompts))
		}
	case m.Type == "interrupt":
		t.interrupt()
	default:
		return false
	}
	return true
}

// attached continues, once, a turn that an earlier sandbox of the conversation left.
func (t *turns) attached() {
	t.first.Do(func() {
		if _, err := os.Stat(filepath.Join(home(t.environ), bootstrap.AgentHistory)); err == nil {
			t.queue <- ""
		}
	})
}

// interrupt ends the current turn.
func (t *turns) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process != nil {
		t.process.Signal(syscall.SIGINT) //nolint:errcheck // it may have ended
	}
}

// run runs a turn. The agent prints its frames as lines, the last of which says how the turn ended.
func (t *turns) run(prompt string) error {
	cmd := &exec.Cmd{
		Path: bootstrap.Program, Args: []string{bootstrap.Program, bootstrap.AgentArg, t.config, bootstrap.AgentTurn},
		Env: t.environ, Dir: home(t.environ), Stdin: strings.NewReader(prompt), Stderr: t.log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	lines, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	t.set(cmd.Process)
	ended, err := t.copy(lines)
	if err != nil {
		cmd.Process.Kill()
	}
	waited := cmd.Wait()
	t.set(nil)
	var exit *exec.ExitError
	switch {
	case err != nil:
		return fmt.Errorf("read from the agent: %w", err)
	case ended || waited == nil:
		return nil
	case errors.As(waited, &exit):
		return fmt.Errorf("the agent ended: %w", exit)
	}
	return waited
}

func (t *turns) set(p *os.Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process = p
}

// copy sends the agent's lines as frames, and reports whether one of them ended the turn.
func (t *turns) copy(r io.Reader) (ended bool, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, chunk), frame.MaxFromRuntime)
	for s.Scan() {
		t.out.send(frame.Text, s.Bytes())
		ended = ended || bytes.HasPrefix(s.Bytes(), []byte(`{"type":"turn_end"`))
	}
	return ended, s.Err()
}

// end sends the end of a turn that the agent did not send.
func (t *turns) end(status, why string) {
	b, err := json.Marshal(struct {
		Type   string `json:"type"`
		Status string `json:"status"`
		Error  string `json:"error"`
	}{"turn_end", status, why})
	if err == nil {
		t.out.send(frame.Text, b)
	}
}
