package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	terminals "github.com/creack/pty"

	"github.com/millrace/millrace/e2e/rig"
)

// user simulates a person at a terminal that runs a client command. The terminal answers one
// query, that for the cursor position.
type user struct {
	t    *testing.T
	cmd  *exec.Cmd
	keys *os.File
	done chan struct{}

	mu    sync.Mutex
	shown bytes.Buffer
	typed int // input bytes, including the terminal's answers
}

const (
	cursorQuery  = "\x1b[6n"
	cursorAnswer = "\x1b[7;1R"
)

func atTerminal(t *testing.T, a *rig.API, cols, rows uint16, args ...string) *user {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "TERM=xterm", "MILLRACE_URL=" + a.URL, "MILLRACE_API_KEY=" + a.Key}
	keys, err := terminals.StartWithSize(cmd, &terminals.Winsize{Cols: cols, Rows: rows})
	must(t, err)
	fd, err := syscall.Dup(int(keys.Fd()))
	must(t, err)
	syscall.CloseOnExec(fd)
	must(t, syscall.SetNonblock(fd, true))
	must(t, keys.Close())
	keys = os.NewFile(uintptr(fd), "terminal") // non-blocking, so that Close does not wait for a Read
	u := &user{t: t, cmd: cmd, keys: keys, done: make(chan struct{})}
	go u.watch()
	go func() {
		cmd.Wait()
		close(u.done)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-u.done
		keys.Close()
	})
	return u
}

func (u *user) watch() {
	buf := make([]byte, 4096)
	for answered := 0; ; {
		n, err := u.keys.Read(buf)
		if err != nil {
			return
		}
		u.mu.Lock()
		u.shown.Write(buf[:n])
		total := bytes.Count(u.shown.Bytes(), []byte(cursorQuery))
		u.mu.Unlock()
		for ; answered < total; answered++ {
			u.press(cursorAnswer)
		}
	}
}

func (u *user) press(s string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys.WriteString(s)
	u.typed += len(s)
}

func (u *user) screen() (text string, typed int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.shown.String(), u.typed
}

func (u *user) await(s string) {
	u.t.Helper()
	if !rig.Poll(time.Minute, func() bool { text, _ := u.screen(); return strings.Contains(text, s) }) {
		text, _ := u.screen()
		u.t.Fatalf("the screen does not show %q: %q", s, text)
	}
}

// ended waits for the program and returns its exit code.
func (u *user) ended() int {
	u.t.Helper()
	select {
	case <-u.done:
	case <-time.After(time.Minute):
		text, _ := u.screen()
		u.t.Fatalf("the program does not end: %q", text)
	}
	return u.cmd.ProcessState.ExitCode()
}

// taken returns how many bytes of input a process has taken, and its state.
func taken(t *testing.T, a *rig.API, id string) (bytes int, running bool) {
	t.Helper()
	for _, line := range strings.Split(string(a.Want(t, 200, "GET", "/v1/processes/"+id+"/events?follow=0", nil).Body), "\n") {
		var e struct {
			Type   string
			Offset int
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Type == "stdin_ack" {
			bytes = e.Offset
		}
	}
	var p struct{ State string }
	a.Want(t, 200, "GET", "/v1/processes/"+id, nil).Decode(t, &p)
	return bytes, p.State == "running"
}

// Detaching leaves a terminal running. Attaching shows its history without its queries and
// sets its size; a query that is printed while everything is down is answered once.
func TestTerminalDetachesAndAttaches(t *testing.T) {
	t.Parallel()
	a := rig.NewUp(t, rig.Options{})
	box := a.Create(t)
	first := atTerminal(t, a.API, 80, 24, "run", "-it", "-s", box.ID, "sh")
	first.await("$ ")
	first.press(`printf 'ask\033[6n'; read x; echo "o""ne"` + "\r")
	first.await("ask" + cursorQuery)
	first.press("\r")
	first.await("one")
	first.press("\x10\x11")
	if code := first.ended(); code != 0 {
		t.Errorf("detaching: exit %d", code)
	}
	first.await("Attach again: millrace attach ")
	text, typed := first.screen()
	id := regexp.MustCompile(`millrace attach (\S+)`).FindStringSubmatch(text)[1]
	typed -= len("\x10\x11")
	if got, running := taken(t, a.API, id); got != typed || !running {
		t.Errorf("the process took %d bytes of %d, running %v", got, typed, running)
	}

	second := atTerminal(t, a.API, 132, 43, "attach", id)
	second.await("one")
	second.press("stty size\r")
	second.await("43 132")
	second.press(`sleep 2; printf 'ask\033[6n'; read x; echo "t""wo"` + "\r")
	second.await(`"t""wo"`)
	a.Kill9()
	second.await(" lost after event ")
	must(t, a.Restart())
	second.await("ask" + cursorQuery)
	second.press("\r")
	second.await("two")
	text, more := second.screen()
	if n := strings.Count(text, cursorQuery); n != 1 {
		t.Errorf("the terminal got the query %d times, want 1: %q", n, text)
	}
	second.keys.Close() // closes the terminal
	if code := second.ended(); code != 0 {
		t.Errorf("a closed terminal: exit %d", code)
	}
	if got, running := taken(t, a.API, id); got != typed+more || !running {
		t.Errorf("the process took %d bytes of %d, running %v", got, typed+more, running)
	}
}
