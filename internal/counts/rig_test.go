package counts

import (
	"context"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/hostd"
	"github.com/millrace/millrace/services/scheduler"
)

// The test binary is the shim when the driver starts it as one.
func TestMain(m *testing.M) {
	if code, ok := hostd.RunHiddenRole(os.Args, os.Stdout, os.Stderr); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

const (
	hostName  = "local"
	apiKey    = "e2b_00112233445566778899"
	waitLimit = 60 * time.Second // for anything that a test waits for
)

// rig is all services in this process, and a sandbox.
type rig struct {
	server  countingServer
	client  *client.Client
	sandbox string
}

// start runs the services until the test ends.
func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{server: count(eventstest.Start(t))}
	ends := events.NewEnds()
	front, back := connect(t, r.server, "gateway", ends), connect(t, r.server, "hostd", ends)
	viewing, stopView := context.WithCancel(context.Background())
	t.Cleanup(stopView) // after the services have ended
	view, err := front.OpenView(viewing)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "counts") // short: sockets are created in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return hostd.Run(ctx, hostd.Config{
			Log: back, View: view, Name: hostName, DataDir: dir, Drivers: []string{"direct"}, Shim: []string{hostd.ShimSelf},
			CopyAhead: -1, DestroyOnExit: func() bool { return true }, Slog: slog.New(slog.DiscardHandler),
		})
	})
	g.Go(func() error { return scheduler.Run(ctx, scheduler.Config{Log: front, View: view}) })
	ready := make(chan struct{})
	g.Go(func() error {
		return gateway.Run(ctx, gateway.Config{Log: front, View: view, Listener: ln, APIKey: apiKey, Ready: func(net.Addr) { close(ready) }})
	})
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-ctx.Done():
		t.Fatalf("the services ended: %v", context.Cause(ctx))
	}
	awaitHost(ctx, t, view)
	if r.client, err = client.New("http://"+ln.Addr().String(), apiKey); err != nil {
		t.Fatal(err)
	}
	created, err := r.client.CreateSandbox(r.context(t), client.SandboxSpec{TemplateID: "base", Timeout: 3600})
	if err != nil {
		t.Fatal(err)
	}
	r.sandbox = created.ID
	return r
}

// awaitHost waits until the host accepts sandboxes.
func awaitHost(ctx context.Context, t *testing.T, view *catalog.View) {
	t.Helper()
	changed, stop := view.Changes()
	defer stop()
	for {
		if h, ok := view.Host(hostName); ok && h.Capacity > 0 && !h.Draining {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the services ended: %v", context.Cause(ctx))
		}
	}
}

func connect(t *testing.T, srv countingServer, name string, ends *events.Ends) *events.Log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	log, err := events.Open(ctx, events.Config{InProcess: srv, Ends: ends, Name: name, MasterKey: eventstest.MasterKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	return log
}

// context returns a context for what a test waits for.
func (r *rig) context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}
