package ports

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// timeout bounds the connect to a port in a sandbox.
const timeout = 10 * time.Second

// Sandbox is a sandbox with ports.
type Sandbox interface {
	// OpenPort opens a stream to a port, or to the files.
	OpenPort(ctx context.Context, port string) (*mux.Stream, error)
}

// Config configures a Server. All fields but Proxy are required.
type Config struct {
	Host    string // name of the host
	Log     *events.Log
	Proxy   uint16                                                // port of the proxy, which is for the sandbox, not for ingress; 0: none
	Sandbox func(sandbox.ID) (Sandbox, bool)                      // returns a sandbox that runs here
	Volume  func(ctx context.Context, s *mux.Stream, name string) // serves a stream to a volume
	Egress  func(id sandbox.ID, s *mux.Stream)                    // serves a stream to a sandbox's egress proxy
	Go      func(func())                                          // runs a function in the background
}

// Server connects gateways to the ports of sandboxes.
type Server struct{ cfg Config }

// New returns a server.
func New(cfg Config) *Server { return &Server{cfg} }

// Run accepts the streams that gateways open to the sandboxes' ports, until ctx ends. The streams
// end with open.
func (sv *Server) Run(ctx, open context.Context) error {
	err := sv.cfg.Log.ServeTunnels(ctx, sv.cfg.Host, func(s *mux.Stream) {
		sv.cfg.Go(func() { sv.serve(open, s) })
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return err
}

// serve joins a stream to the port of a sandbox, which its target names as <sandbox>:<port>, or to
// its files: <sandbox>:files. Streams to <volume>:volume and <sandbox>:egress are served here.
func (sv *Server) serve(ctx context.Context, s *mux.Stream) {
	if name, ok := strings.CutSuffix(s.Target(), ":volume"); ok {
		sv.cfg.Volume(ctx, s, name)
		return
	}
	if name, ok := strings.CutSuffix(s.Target(), ":egress"); ok {
		id, err := sandbox.ParseID(name)
		if err != nil {
			s.Abort(err)
			return
		}
		sv.cfg.Egress(id, s)
		return
	}
	inside, err := sv.open(ctx, s.Target())
	if err != nil {
		s.Abort(err)
		return
	}
	s.Accept()
	mux.Join(s, inside)
}

func (sv *Server) open(ctx context.Context, target string) (*mux.Stream, error) {
	name, port, _ := strings.Cut(target, ":")
	id, err := sandbox.ParseID(name)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case port == wire.TargetFiles:
	case err != nil || n == 0:
		return nil, kind.Newf(kind.Precondition, "open port", name, "port %q does not exist", port)
	case uint16(n) == sv.cfg.Proxy:
		return nil, kind.New(kind.Precondition, "open port", name, "the port is not open")
	}
	sb, ok := sv.cfg.Sandbox(id)
	if !ok {
		return nil, kind.New(kind.NotFound, "open port", name, "the sandbox does not run here")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return sb.OpenPort(ctx, port)
}
