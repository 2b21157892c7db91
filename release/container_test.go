package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envPrograms is the directory of the real programs, or "build" to build them, which takes minutes.
const envPrograms = "MILLRACE_TEST_IMAGE"

// realPrograms puts the real programs that a container without other files can use into a release.
func realPrograms(t *testing.T, r *release) {
	t.Helper()
	from, used := os.Getenv(envPrograms), programs[:2]
	switch {
	case from == "":
		t.Skip(envPrograms + " is not set")
	case os.Geteuid() != 0:
		t.Skip("a container requires root")
	case from == "build":
		root, err := filepath.Abs("..")
		if err != nil {
			t.Fatal(err)
		}
		r.root = root
		if err := r.build(context.Background(), r.platforms[0], r.dir(r.platforms[0]), used); err != nil {
			t.Fatal(err)
		}
	default:
		for _, p := range used {
			to := filepath.Join(r.dir(r.platforms[0]), "bin", p.name)
			if err := errors.Join(copyFile(to, filepath.Join(from, p.name)), os.Chmod(to, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// contained runs a program with a directory as its root, in its own mount, process, host name and IPC
// namespaces. It has the file systems that every container has.
const contained = `set -e
root=$1; shift
mount --make-rprivate /
mkdir -p $root/proc $root/dev $root/sys
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount --rbind /sys $root/sys
exec chroot $root "$@"`

// container returns a command in a new container.
func container(t *testing.T, root string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", contained, "sh", root}, args...)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

// The real programs run in a container of the image, in which there is nothing else: one prints its
// version, the other serves a sandbox with a process, and ends after SIGTERM.
func TestTheImageRunsTheRealPrograms(t *testing.T) {
	r := fake(t)
	realPrograms(t, r)
	tree, config := unpacked(t, r)
	program := "/usr/local/bin/" + config.Entrypoint[0]
	out, err := container(t, tree, config.Env, program, "version").CombinedOutput()
	version := strings.TrimSpace(string(out))
	if err != nil || !strings.HasPrefix(version, "millrace ") {
		t.Fatalf("version: %q, %v", out, err)
	}

	checkArguments(t, filepath.Join(tree, program))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	const key = "e2b_5b117000000000000000000000000000000000e2"
	up := container(t, tree, append(config.Env, "MILLRACE_API_KEY="+key), program, config.Cmd[0], "--listen", addr, "--driver", "direct")
	var log bytes.Buffer
	up.Stdout, up.Stderr = &log, &log
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	defer up.Process.Kill()
	c := client{"http://" + addr, key}
	if err := c.await(ended); err != nil {
		up.Process.Kill()
		t.Fatalf("%v\n%s", err, &log)
	}
	var box struct{ SandboxID string }
	if err := json.Unmarshal([]byte(c.want(t, 201, "POST", "/sandboxes", "", `{"templateID":"base","timeout":60}`)), &box); err != nil {
		t.Fatal(err)
	}
	if lines := c.want(t, 200, "POST", "/commands", box.SandboxID, `{"cmd":"`+program+`","args":["version"]}`); !strings.Contains(lines, version) || !strings.Contains(lines, `"exit_code":0`) {
		t.Errorf("a process in a sandbox printed %s", lines)
	}
	c.want(t, 204, "DELETE", "/sandboxes/"+box.SandboxID, "", "")
	up.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, &log)
		}
	case <-time.After(time.Minute):
		t.Error("it runs a minute after SIGTERM")
	}
}

// checkArguments fails if the chart uses a flag that its role does not have.
func checkArguments(t *testing.T, program string) {
	t.Helper()
	all, err := render(t, map[string]any{"existingSecret": "keys", "gateway": map[string]any{"tlsSecret": "tls"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range pods(all) {
		args := p.Spec.Containers[0].Args
		help, err := exec.Command(program, args[0], "--help").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s --help: %v", name, args[0], err)
		}
		for _, arg := range args[1:] {
			if flag, _, _ := strings.Cut(arg, "="); !strings.HasPrefix(flag, "--") || !strings.Contains(string(help), flag+" ") {
				t.Errorf("%s: %s has no %q", name, args[0], flag)
			}
		}
	}
}

// client calls a gateway.
type client struct{ url, key string }

func (c *client) call(method, path, sandbox, body string) (int, string, error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Api-Key", c.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("E2b-Sandbox-Id", sandbox)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

func (c *client) want(t *testing.T, status int, method, path, sandbox, body string) string {
	t.Helper()
	got, answer, err := c.call(method, path, sandbox, body)
	if err != nil || got != status {
		t.Fatalf("%s %s: %d %s, %v", method, path, got, answer, err)
	}
	return answer
}

// await waits until the gateway is ready and a host accepts sandboxes, or the program has ended.
func (c *client) await(ended chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	last := "no answer"
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the program ended: %w", err)
		case <-late:
			return fmt.Errorf("not ready: %s", last)
		case <-tick.C:
		}
		status, _, err := c.call("GET", "/readyz", "", "")
		if err != nil || status != 200 {
			last = fmt.Sprint(status, err)
			continue
		}
		if _, last, err = c.call("GET", "/v1/hosts", "", ""); err == nil && strings.Contains(last, `"alive"`) {
			return nil
		}
	}
}
