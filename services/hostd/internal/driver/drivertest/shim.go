//go:build linux

// Package drivertest is the contract of a driver as tests. A driver's test
// binary calls Main from TestMain, since it is also the shim that the tests
// run, and calls Run with its driver.
package drivertest

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/convruntime"
	"github.com/millrace/millrace/services/hostd/internal/deictic"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
	"github.com/millrace/millrace/services/hostd/internal/sigguard"
	"github.com/millrace/millrace/services/hostd/internal/sudo"
)

// shimArg makes the test binary the shim of a sandbox.
const shimArg = "drivertest-shim"

// HeadlessArg makes the test binary the process that Headless starts. It prints "headless"
// when its first thread has ended.
const HeadlessArg = "drivertest-headless"

// Main is the body of a driver's TestMain.
func Main(m *testing.M) {
	if sudo.Called(os.Args) {
		os.Exit(sudo.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case nsinit.Arg:
			nsinit.Init(os.Args[2:])
			os.Exit(1)
		case vminit.Arg:
			vminit.Init(os.Args[2:])
			os.Exit(1)
		case vminit.PackArg:
			os.Exit(vminit.Pack(os.Args[2:]))
		case bootstrap.Arg:
			os.Exit(convruntime.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case bootstrap.AgentArg:
			os.Exit(deictic.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case shimArg:
			serve()
			os.Exit(1)
		case HeadlessArg:
			endFirstThread()
		}
	}
	// With the race detector, programs that tests start wait for a second before they end.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(m.Run())
}

// request is a test's request to the shim: to run a command, or to try a system
// call itself.
type request struct {
	Args []string // a command and its arguments, or those of a call
	UID  int      // user that runs it; -1: the shim's
	OOM  bool     // or: whether to return the count of kills
	Call string   // or: a name in forbiddenCalls or allowedCalls, or one of handleConn

	Env   []string // variables besides those of the shim
	Stdin string   // for the calls "stdio" and "terminal", which run Args
}

type response struct {
	Out  string // stdout and stderr, or the error of a call
	Err  string // stderr only, of the call "stdio"
	Code int
}

// serve responds to requests, one a connection, until it is killed. Like the real
// shim it inherits orphaned children.
func serve() {
	// Processes of the same user inside may send it any signal.
	if sigguard.Install() != nil {
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGSEGV,
		syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT, syscall.SIGSTKFLT)
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	l, err := listen()
	if err != nil {
		return
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go handleConn(conn)
	}
}

// listen returns the listener to which the tests connect; see shim.Main.
func listen() (net.Listener, error) {
	if !slices.Contains(os.Args, "-serial") {
		return net.FileListener(os.NewFile(driver.ListenFd, "listener"))
	}
	stream := fifolink.Pair{In: os.Stdin, Out: os.Stdout}
	i := slices.Index(os.Args, vminit.PackFlag)
	if i < 0 {
		return fifolink.Listen(stream), nil
	}
	aside, err := vminit.Aside(os.Args[i+1], uintptr(syscall.Stdout))
	return fifolink.ListenAside(stream, aside), err
}

func handleConn(conn net.Conn) {
	defer conn.Close()
	var req request
	if gob.NewDecoder(conn).Decode(&req) != nil {
		return
	}
	var resp response
	switch {
	case req.OOM:
		b := make([]byte, 4096)
		n, err := unix.Pread(driver.OOMFd, b, 0)
		resp.Out = fmt.Sprintf("%s%v", b[:max(n, 0)], err)
	case req.Call == "headless":
		cmd, err := Headless(req.Args[0], os.Environ())
		if err != nil {
			resp.Out = err.Error()
			break
		}
		go cmd.Wait()
	case req.Call == "use up":
		resp.Code = exhaust(req.Args[0], req.UID)
	case req.Call == "attribute":
		resp.Out = setAttribute(req.Args[0], req.Args[1], req.Args[2])
	case req.Call == "list":
		resp.Out = listAll(req.Args[0], req.Args[1] == "true")
	case req.Call == "stdio":
		resp = toResponse(runWithStdio(req))
	case req.Call == "terminal":
		resp = toResponse(runAtTerminal(req))
	case req.Call == "dial" || req.Call == "listen" || req.Call == "descriptors":
		resp.Out = callWithArgs(req.Call, req.Args)
	case req.Call != "":
		resp.Out = tryCall(req.Call, req.UID)
	default:
		resp = runCommand(req)
	}
	gob.NewEncoder(conn).Encode(resp)
}

func toResponse(resp response, err error) response {
	if err != nil {
		return response{Out: err.Error(), Code: 127}
	}
	return resp
}

func runCommand(req request) response {
	cmd := userCommand(req)
	out, err := cmd.CombinedOutput()
	resp := response{Out: string(out)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		resp.Code = exit.ExitCode()
	case err != nil:
		resp.Out, resp.Code = err.Error(), 127
	}
	return resp
}
