package convruntime

import (
	"bufio"
	"bytes"
	"encoding/base64"
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
	"github.com/millrace/millrace/services/hostd/internal/desktop"
)

// maxPrompts limits the prompts that wait for the turn before them.
const maxPrompts = 16

// turns runs the agent: a process for each turn, one after another. Between turns there is none, and what
// it has to remember is in its record.
type turns struct {
	config  string // path of the configuration
	environ []string
	out     *output
	desktop *desktop.Desktop // of the sandbox, if it was started
	log     io.Writer

	queue chan string // prompts; an empty one continues a turn that was interrupted
	all   sync.WaitGroup
	first sync.Once

	mu          sync.Mutex
	pending     int      // accepted turns that have not ended
	control     *os.File // of the current turn's process, see [bootstrap.AgentControl]; nil: there is none yet
	interrupted bool     // the current turn is to end: the first one that is pending
}

func newTurns(dir directory, environ []string, out *output, d *desktop.Desktop, log io.Writer) *turns {
	t := &turns{config: filepath.Join(string(dir), bootstrap.EnvFile), environ: environ, out: out, desktop: d, log: log, queue: make(chan string, maxPrompts)}
	t.all.Go(func() {
		for prompt := range t.queue {
			ended, err := t.run(prompt)
			if ended {
				continue
			}
			t.ended()
			if err != nil {
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
		if !t.accept(*m.Text) {
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
			t.accept("")
		}
	})
}

// accept queues a turn, unless too many wait.
func (t *turns) accept(prompt string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.queue <- prompt:
		t.pending++
		return true
	default:
		return false
	}
}

// interrupt ends the current turn, also if its process does not exist yet.
func (t *turns) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending == 0 || t.interrupted {
		return
	}
	t.interrupted = true
	t.passOn()
}

// passOn interrupts the process of the current turn, if that is to end and has one. mu is held.
func (t *turns) passOn() {
	if t.interrupted && t.control != nil {
		t.control.Write([]byte{1}) //nolint:errcheck // the process may have ended
	}
}

// run runs a turn, and reports whether the client got its end. The agent prints its frames as lines, the last of
// which says how the turn ended.
func (t *turns) run(prompt string) (ended bool, err error) {
	cmd := &exec.Cmd{
		Path: bootstrap.Program, Args: []string{bootstrap.Program, bootstrap.AgentArg, t.config, bootstrap.AgentTurn},
		Env: t.desktop.Environ(t.environ), Dir: home(t.environ), Stdin: strings.NewReader(prompt), Stderr: t.log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	lines, err := t.start(cmd)
	if err != nil {
		return false, fmt.Errorf("start the agent: %w", err)
	}
	ended, err = t.copy(lines)
	if err != nil {
		cmd.Process.Kill()
	}
	waited := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err != nil:
		return ended, fmt.Errorf("read from the agent: %w", err)
	case ended || waited == nil:
		return ended, nil
	case errors.As(waited, &exit):
		return false, fmt.Errorf("the agent ended: %w", exit)
	}
	return false, waited
}

// start starts the process of a turn, which reads interrupts from a pipe: a signal would end it before it
// handles signals.
func (t *turns) start(cmd *exec.Cmd) (lines io.Reader, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{r}
	if lines, err = cmd.StdoutPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.control = w
	t.passOn()
	return lines, nil
}

// ended records the end of the current turn.
func (t *turns) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.control != nil {
		t.control.Close()
	}
	t.control, t.interrupted = nil, false
	t.pending--
}

// copy sends the agent's lines as frames, and reports whether one of them ended the turn.
func (t *turns) copy(r io.Reader) (ended bool, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, chunk), frame.MaxFromRuntime)
	for s.Scan() {
		if png, ok := bytes.CutPrefix(s.Bytes(), []byte(bootstrap.AgentScreenshot)); ok {
			t.show(png)
			continue
		}
		if !ended && bytes.HasPrefix(s.Bytes(), []byte(`{"type":"turn_end"`)) {
			ended = true
			t.ended() // before the client knows: its next interrupt is for the next turn
		}
		t.out.send(frame.Text, s.Bytes())
	}
	return ended, s.Err()
}

// show sends a screenshot of the agent as the desktop's own are sent. A session without a desktop has no binary
// frames.
func (t *turns) show(encoded []byte) {
	png, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err == nil && t.desktop.Started() {
		t.out.send(frame.Binary, png)
	}
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
