//go:build amd64 || arm64

package sigguard_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/sigguard"
)

const deafArg = "deaf"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == deafArg {
		runProtected()
		return
	}
	os.Exit(m.Run())
}

// runProtected is a protected program, which answers each line that it reads.
func runProtected() {
	for range 2 { // the second call changes nothing
		if err := sigguard.Install(); err != nil {
			fmt.Println(err)
			return
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "fault":
			fmt.Println(fault())
		case "start":
			fmt.Println(exec.Command("/bin/sh", "-c", "kill -34 $$; exit 1").Run())
		case "notify": // signals that sigguard leaves to os/signal
			signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM)
			fmt.Println()
		default:
			fmt.Println(in.Text())
		}
	}
}

// fault is a fault of the program itself.
func fault() (recovered any) {
	defer func() { recovered = recover() }()
	var missing *bufio.Reader
	return missing.Buffered()
}

type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command("/proc/self/exe", deafArg)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	p.in, p.out = in, bufio.NewReader(out)
	return p
}

func (p *program) ask(line string) string {
	p.t.Helper()
	fmt.Fprintln(p.in, line)
	answer, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("no answer to %q: %v", line, err)
	}
	return strings.TrimSpace(answer)
}

// queue sends a signal like sigqueue.
func queue(pid int, sig syscall.Signal) error {
	info := unix.Siginfo{Signo: int32(sig), Code: -1}
	if _, _, errno := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(sig), uintptr(unsafe.Pointer(&info))); errno != 0 {
		return errno
	}
	return nil
}

// sendByKernel makes the kernel send a signal when a pipe becomes readable.
func sendByKernel(pid int, sig syscall.Signal) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	for _, set := range [][2]int{{unix.F_SETOWN, pid}, {unix.F_SETSIG, int(sig)}, {unix.F_SETFL, unix.O_ASYNC}} {
		if _, err := unix.FcntlInt(r.Fd(), set[0], set[1]); err != nil {
			return err
		}
	}
	_, err = w.Write([]byte("x"))
	return err
}

// TestSignalsOfOthersDoNothing, in any thread and any state of it.
func TestSignalsOfOthersDoNothing(t *testing.T) {
	p := start(t)
	p.ask("notify")
	senders := map[string]func(int, syscall.Signal) error{"kill": unix.Kill, "sigqueue": queue, "F_SETSIG": sendByKernel}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig == unix.SIGKILL || sig == unix.SIGSTOP || sig >= unix.SIGCONT && sig <= unix.SIGTTOU {
			continue // they stop the process, or cannot be handled
		}
		for name, send := range senders {
			for range 5 {
				if err := send(p.cmd.Process.Pid, sig); err != nil {
					t.Fatalf("signal %d by %s: %v", sig, name, err)
				}
				if got := p.ask("hello"); got != "hello" {
					t.Fatalf("after signal %d by %s: %q", sig, name, got)
				}
			}
		}
	}
}

func TestItsOwnFaultsAreFaults(t *testing.T) {
	if got := start(t).ask("fault"); !strings.Contains(got, "nil pointer dereference") {
		t.Errorf("got %q", got)
	}
}

func TestChildrenAreNotProtected(t *testing.T) {
	if got := start(t).ask("start"); got != "signal: signal 34" {
		t.Errorf("got %q", got)
	}
}
