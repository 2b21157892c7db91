//go:build linux

package gvisor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// runsc calls the program for one sandbox.
type runsc struct {
	path string // the one that the sandbox is created with; for a running sandbox see instance.program
	id   sandbox.ID
	dir  string // workDir
}

const finishTimeout = 20 * time.Second

// Names in a sandbox's workDir.
const (
	stateDir   = "run"      // runsc's own
	rootDir    = "root"     // where a view is mounted
	diskDir    = "disk"     // contains the file with what the sandbox wrote
	seedFile   = "seed.tar" // initial files
	shimDir    = "inside"   // contains only shimFile
	shimFile   = "shim"
	pidFile    = "pid"
	veilFile   = "veil"      // reason why the host's files are visible as to the host's root; see package main of runsc
	errorFile  = "runsc.log" // errors of runsc, one JSON object a line
	toShim     = "in"
	toHostd    = "out"
	outputPipe = "err" // output that is not read otherwise: a pipe, so that it does not fill the disk
)

func (r *runsc) in(names ...string) string {
	return filepath.Join(append([]string{r.dir}, names...)...)
}

// rootFlag marks the processes of the sandbox: runsc passes it on to all that it starts.
func (r *runsc) rootFlag() string { return "--root=" + r.in(stateDir) }

// command returns a call with arguments, in a mount namespace of its own, and without
// root in a user namespace in which hostd's user is root. first precedes all other
// arguments.
func (r *runsc) command(ctx context.Context, first []string, args ...string) *exec.Cmd {
	flags := []string{r.rootFlag(), "--platform=systrap", "--network=none", "--gofer-network-namespace=new", "--ignore-cgroups", "--host-settings=ignore", endsAtOnce}
	cmd := exec.CommandContext(ctx, r.path, slices.Concat(first, flags, args)...)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return cmd
}

// start runs cmd, which leaves the sandbox running, in its cgroup.
func (r *runsc) start(cmd *exec.Cmd, group *cgroup.Group) error {
	return live.OnThread(r.dir, func() error {
		return group.Start(cmd.SysProcAttr, func() error { return r.run(cmd) })
	})
}

// call runs a command for a running sandbox with the program that the sandbox runs. It has
// no error log: opening one would recreate the directory of a sandbox that is being removed.
func (r *runsc) call(ctx context.Context, program *os.File, args ...string) error {
	its := runsc{path: "/proc/self/fd/3", id: r.id, dir: r.dir}
	cmd := its.command(ctx, nil, args...)
	cmd.ExtraFiles = []*os.File{program}
	cmd.Dir = r.dir
	cmd.SysProcAttr.Pdeathsig = 0 // the command completes, also when hostd ends
	var stderr head
	cmd.Stderr = &stderr
	return failure(cmd.Run(), func() string { return string(bytes.TrimSpace(stderr)) })
}

// head is a writer that keeps the first bytes written to it.
type head []byte

func (h *head) Write(b []byte) (int, error) {
	const most = 4 << 10
	*h = append(*h, b[:min(len(b), most-len(*h))]...)
	return len(b), nil
}

// run runs a command to its end.
func (r *runsc) run(cmd *exec.Cmd) error {
	return failure(cmd.Run(), func() string { return cmp.Or(r.lastError(), r.output()) })
}

// failure adds runsc's own message to err. Only that text shows that the host's disk
// is full.
func failure(err error, stderrText func() string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	text := stderrText()
	if strings.Contains(text, unix.ENOSPC.Error()) {
		err = errors.Join(err, unix.ENOSPC)
	}
	return fmt.Errorf("runsc: %w: %s", err, text)
}

// lastError returns the last line of the error log. It reads only the end of the log, since
// the sandbox's own process writes to it, too.
func (r *runsc) lastError() string {
	const most, end = 4 << 10, 64 << 10
	f, err := os.Open(r.in(errorFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	f.Seek(-end, io.SeekEnd) //nolint:errcheck // a shorter one is read from its beginning
	b, err := io.ReadAll(io.LimitReader(f, end))
	if err != nil {
		return ""
	}
	b = bytes.TrimSpace(b)
	b = b[bytes.LastIndexByte(b, '\n')+1:]
	var line struct {
		Msg string `json:"msg"`
	}
	if json.Unmarshal(b, &line) == nil && line.Msg != "" {
		b = []byte(line.Msg)
	}
	return string(b[:min(len(b), most)])
}

// output returns the beginning of the unread output.
func (r *runsc) output() string {
	fd, err := unix.Open(r.in(outputPipe), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	b := make([]byte, 4<<10)
	n, _ := unix.Read(fd, b)
	return string(b[:max(n, 0)])
}

// pid returns the pid of the sandbox's process on the host; see run's flag.
func (r *runsc) pid() (int, error) {
	b, err := os.ReadFile(r.in(pidFile))
	if err != nil {
		return 0, err
	}
	var pid int
	_, err = fmt.Sscan(string(b), &pid)
	return pid, err
}

// sockets removes the sockets that runsc leaves elsewhere if its own directory's path is
// too long for a socket's address.
func (r *runsc) sockets() {
	for _, dir := range otherSockets() {
		path := filepath.Join(dir, r.socket())
		if fi, err := os.Lstat(path); err == nil && fi.Mode()&fs.ModeSocket != 0 {
			os.Remove(path)
		}
	}
}
