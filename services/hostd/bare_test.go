package hostd

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// bare returns a sandbox of a host with nothing else.
func bare(h *host) *hostSandbox {
	return bareIn(h, &sandbox.State{ID: sandbox.NewID(), Phase: sandbox.PhaseRunning})
}

// bareIn is bare for a sandbox in a state.
func bareIn(h *host, s *sandbox.State) *hostSandbox {
	h.cfg.Name, h.slog, h.epoch = hostName, slog.New(slog.DiscardHandler), 2
	if h.log == nil {
		h.log = new(events.Log) // it sends nothing
	}
	h.assemble()
	h.useView(0)
	return newSandbox(h, s)
}

// fakeInstance is an instance whose shim runs a function on each connection, after its Hello.
type fakeInstance struct {
	driver.Instance
	shim func(net.Conn)
}

func (p fakeInstance) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		if _, err := theirs.Write(wire.AppendHello(nil, &wire.Hello{})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (fakeInstance) Done() <-chan struct{} { return nil }

// instantSnapshot is an instance whose snapshot with memory takes no time.
type instantSnapshot struct{ fakeInstance }

func (instantSnapshot) Snapshot(context.Context, string, bool) error { return nil }

// An instance is paused during a snapshot with memory: its shim receives the time afterwards.
func TestTimeIsSentAfterASnapshotOfMemory(t *testing.T) {
	sb := bare(&host{})
	sb.h.cfg.DataDir, sb.h.cfg.Spool = t.TempDir(), -1
	times := make(chan struct{})
	sb.current.Set(sb.id, instantSnapshot{fakeInstance{shim: func(c net.Conn) {
		for r := wire.NewReader(c); ; {
			ty, _, err := r.Next()
			if err != nil {
				return
			}
			if ty == wire.TypeTime {
				close(times)
			}
		}
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { sb.session.Serve(ctx, &sb.pausing, sb.running) }) //nolint:errcheck // it ends with ctx
	defer serving.Wait()
	defer cancel()
	<-sb.session.Ready()
	if err := sb.snapshots.write(t.Context(), sb.h.snapshotDir("s"), &events.TakeSnapshot{Memory: true, Internal: true}); err != nil {
		t.Fatal(err)
	}
	<-times
}
