//go:build linux

package drivertest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Headless starts a process in a session of its own whose first thread ends while it
// continues, which makes it look like a zombie, and returns when that is so. It
// has arg as an argument, and env. The caller waits for it.
func Headless(arg string, env []string) (*exec.Cmd, error) {
	cmd := exec.Command(self, HeadlessArg, arg)
	cmd.SysProcAttr, cmd.Env = &syscall.SysProcAttr{Setsid: true}, env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("output %q: %w", line, errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
	}
	return cmd, nil
}

// endFirstThread is the body of such a process. It never returns.
func endFirstThread() {
	go workHeadless()
	// The existing goroutines keep their threads, so that a new one gets the first.
	for {
		another := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == unix.Getpid() {
				syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends this thread
			}
			close(another)
			select {}
		}()
		<-another
	}
}

// workHeadless reports when the first thread has ended, and works.
func workHeadless() {
	for {
		b, err := os.ReadFile("/proc/self/stat")
		if err == nil && strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')'):]), ") Z") {
			break
		}
		runtime.Gosched()
	}
	fmt.Println("headless")
	for { // a pause is detected by the time that it does not use
		runtime.Gosched()
	}
}

// headless starts such a process in the instance.
func (b *instance) headless(t *testing.T) {
	t.Helper()
	if r := send(t, b.Instance, request{Call: "headless", Args: []string{string(b.spec.ID)}}); r.Out != "" {
		t.Fatalf("a process without its first thread: %s", r.Out)
	}
}
