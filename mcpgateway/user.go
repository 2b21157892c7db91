package main

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// unprivilegedName is the sandbox's user, which runs everything except the gateway.
const unprivilegedName = "user"

// runner is the user that runs commands.
type runner struct {
	*user.User // nil: the gateway's own user
	uid, gid   uint32
}

// unprivileged returns the sandbox's user; the gateway's own if that is not root or the
// sandbox's user does not exist.
func unprivileged() runner {
	if os.Getuid() != 0 {
		return runner{}
	}
	u, err := user.Lookup(unprivilegedName)
	if err != nil {
		return runner{}
	}
	return runnerOf(u)
}

func runnerOf(u *user.User) runner {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return runner{}
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return runner{}
	}
	return runner{User: u, uid: uint32(uid), gid: uint32(gid)}
}

// command returns a program to run in dir that ends with the gateway.
func (r runner) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, os.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if r.User != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: r.uid, Gid: r.gid}
		cmd.Env = append(cmd.Env, "HOME="+r.HomeDir, "USER="+r.Username, "LOGNAME="+r.Username)
	}
	return cmd
}

// own creates dir, owned by the runner, and removes an existing one before.
func (r runner) own(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil || r.User == nil {
		return err
	}
	return os.Chown(dir, int(r.uid), int(r.gid))
}
