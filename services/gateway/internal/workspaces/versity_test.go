package workspaces_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway/internal/workspaces"
	"github.com/millrace/millrace/services/gateway/internal/workspaces/workspacestest"
)

const (
	// versityVariable enables tests that build large programs.
	versityVariable = "MILLRACE_E2E_TEMPLATES"
	versity         = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
)

// startVersity builds and runs versitygw, and returns the URL of a bucket.
func startVersity(t *testing.T) (url string) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "install", versity)
	build.Dir, build.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", versity, err, msg)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	files := filepath.Join(dir, "files")
	if err := os.MkdirAll(filepath.Join(files, "files"), 0o700); err != nil { // a directory is a bucket
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	server := exec.CommandContext(ctx, filepath.Join(dir, "versitygw"), "--port", addr, "--access", "AKIA", "--secret", secretKey, "posix", "--sidecar", filepath.Join(dir, "meta"), files)
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	if err := os.Mkdir(filepath.Join(dir, "meta"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
		if t.Failed() {
			t.Logf("versitygw:\n%s", log.String())
		}
	})
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ready, "tcp", addr)
		if err == nil {
			conn.Close()
			break
		}
		select {
		case <-tick.C:
		case <-ready.Done():
			t.Fatalf("versitygw does not listen: %v\n%s", err, log.String())
		}
	}
	return "http://" + addr + "/files"
}

// The suite of stores passes with versitygw, as a process.
func TestInBucketOfVersity(t *testing.T) {
	if os.Getenv(versityVariable) == "" {
		t.Skipf("the build of %s takes minutes; set %s", versity, versityVariable)
	}
	url := startVersity(t)
	workspacestest.Run(t, func(t *testing.T) workspaces.Store {
		return openBucket(t, url+"/"+strings.ReplaceAll(t.Name(), "#", ""), 0)
	})
}
