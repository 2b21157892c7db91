package events_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/sandbox"
)

// restarted is a server that a test replaces.
type restarted struct {
	mu  sync.Mutex
	srv *natsd.Server
}

func (r *restarted) InProcessConn() (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.srv.InProcessConn()
}

// logBuffer collects log lines. It closes first when the first line arrives.
type logBuffer struct {
	mu    sync.Mutex
	text  strings.Builder
	first chan struct{}
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text.Len() == 0 {
		close(b.first)
	}
	return b.text.Write(line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A service waits for a NATS server whose disk is too small, logs the reason, and continues
// when there is space.
func TestAServiceWaitsForDiskSpaceOfNATS(t *testing.T) {
	dir := t.TempDir()
	start := func(size int64) *natsd.Server {
		srv, err := natsd.Start(natsd.Config{Dir: dir, MaxStore: size})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	r := &restarted{srv: start(20 << 20)}
	defer func() { r.srv.Stop() }()
	logged := &logBuffer{first: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		log, err := events.Open(ctx, events.Config{InProcess: r, Log: slog.New(slog.NewTextHandler(logged, nil))})
		if err == nil {
			log.Close()
		}
		opened <- err
	}()
	select {
	case <-logged.first:
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	}
	if text := logged.String(); !strings.Contains(text, "too little disk space") {
		t.Errorf("got log %q, want the reason for waiting", text)
	}
	r.mu.Lock()
	r.srv.Stop()
	r.srv = start(600 << 20)
	r.mu.Unlock()
	if err := <-opened; err != nil {
		t.Errorf("with space: %v", err)
	}
}

// On a small disk most of the space is for output: records do not lose their beginning
// while hundreds of MiB are free.
func TestMostOfASmallDiskIsForOutput(t *testing.T) {
	for _, tt := range []struct{ disk, least int64 }{
		{512 << 20, 190 << 20}, {1 << 30, 420 << 20}, {2 << 30, 900 << 20},
	} {
		srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: tt.disk / 4 * 3})
		if err != nil {
			t.Fatal(err)
		}
		log, err := events.Open(t.Context(), events.Config{InProcess: srv})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		js := jetStream(t, srv)
		out, err := js.Stream(t.Context(), "OUT_00")
		if err != nil {
			t.Fatal(err)
		}
		if got := out.CachedInfo().Config.MaxBytes; got < tt.least {
			t.Errorf("on a disk of %d MiB the output limit is %d MiB, want at least %d", tt.disk>>20, got>>20, tt.least>>20)
		}
		srv.Stop()
	}
}

// On a full disk a client's request fails soon, with the reason.
func TestARequestFailsSoonOnAFullDisk(t *testing.T) {
	dir := smallDisk(t, 512<<20)
	srv, err := natsd.Start(natsd.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	log, err := events.Open(t.Context(), events.Config{InProcess: srv})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	go log.MonitorStreams(t.Context())
	takeAll(filepath.Join(dir, "fill"))
	ctx, cancel := context.WithTimeout(events.Prompt(t.Context()), time.Minute)
	defer cancel()
	for i := range 3 {
		began := time.Now()
		_, err := log.AppendSandbox(ctx, "t", sandbox.NewID(), 0, 1, sandbox.Requested{Template: strings.Repeat("x", 64<<10)})
		took := time.Since(began)
		if !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "space") {
			t.Errorf("request %d: %v, want Unavailable and the reason", i, err)
		}
		if i > 0 && took > 15*time.Second {
			t.Errorf("request %d took %v", i, took)
		}
		t.Logf("request %d: %v: %v", i, took, err)
	}
}
