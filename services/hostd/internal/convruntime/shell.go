package convruntime

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	pieceSize = 32 << 10               // largest piece of output in one frame
	maxPipe   = 1 << 20                // more than a pipe contains when its writer ends
	grace     = 100 * time.Millisecond // silence after the end of the shell that ends its output
)

// runShell runs a command line by a shell in the home directory, with no input, and passes its
// output, standard output and error in the order of their arrival, to send. Like the shim, it does
// not wait for processes that the command leaves behind: what they print later is read and dropped,
// so that they neither block nor die. It returns the exit code; of a signal n, 128+n.
func runShell(line string, env []string, send func(string)) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	sh := shell()
	cmd := &exec.Cmd{
		Path: sh, Args: []string{sh, "-c", line}, Env: env, Dir: home(env), Stdout: w, Stderr: w,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return 0, err
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		cmd.Wait()                    //nolint:errcheck // its state has the result
		r.SetReadDeadline(time.Now()) // see copy
	})
	p := printer{send: send}
	if p.copy(r) {
		r.Close()
	} else {
		go drop(r)
	}
	ended.Wait()
	return exitCode(cmd.ProcessState), nil
}

// drop reads output until its writers have ended.
func drop(r *os.File) {
	defer r.Close()
	if r.SetReadDeadline(time.Time{}) == nil {
		io.Copy(io.Discard, r) //nolint:errcheck // it ends with its writers
	}
}

func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// shell returns the shell of commands. Small images have only a plain one.
func shell() string {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// home returns the home directory that an environment names, or the root if it does not exist.
func home(env []string) string {
	for _, v := range env {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				return dir
			}
		}
	}
	return "/"
}

// printer passes on output in pieces that end between characters.
type printer struct {
	send func(string)
	rest []byte // beginning of a character
}

// copy passes on everything up to the end, and then returns true. A deadline of r says that the shell
// has ended: then copy passes on what the pipe contains, and returns false when it is silent.
func (p *printer) copy(r *os.File) (end bool) {
	buf := make([]byte, pieceSize)
	alone := false // whether the shell has ended
	for left := maxPipe; left > 0; {
		if alone {
			r.SetReadDeadline(time.Now().Add(grace))
		}
		n := copy(buf, p.rest)
		m, err := r.Read(buf[n:])
		n += m
		cut := n
		if err == nil {
			cut -= partial(buf[:n])
		}
		last := err != nil && (alone || !errors.Is(err, os.ErrDeadlineExceeded))
		if err == nil || last {
			p.pass(buf[:cut])
			p.rest = append(p.rest[:0], buf[cut:n]...)
		}
		switch {
		case last:
			return !errors.Is(err, os.ErrDeadlineExceeded)
		case err != nil:
			alone = true
		case alone:
			left -= m
		}
	}
	return false
}

func (p *printer) pass(b []byte) {
	if len(b) > 0 {
		p.send(string(b))
	}
}

// partial returns the number of bytes at the end of b that begin a character.
func partial(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if last := b[len(b)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
