package hostd

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// portTimeout bounds the connect to a port in a sandbox.
const portTimeout = 10 * time.Second

// portServer connects gateways to the ports of sandboxes.
type portServer struct {
	h *host
}

// run accepts the streams that gateways open to the sandboxes' ports, until ctx ends.
func (pt *portServer) run(ctx context.Context) error {
	err := pt.h.log.ServeTunnels(ctx, pt.h.cfg.Name, func(s *mux.Stream) {
		pt.h.wg.Go(func() { pt.serve(s) })
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return err
}

// serve joins a stream to the port of a sandbox, which its target names as <sandbox>:<port>, or to
// its files: <sandbox>:files. A stream to <volume>:volume is served here.
func (pt *portServer) serve(s *mux.Stream) {
	if name, ok := strings.CutSuffix(s.Target(), ":volume"); ok {
		pt.h.volumes.Serve(pt.h.runCtx, s, name)
		return
	}
	inside, err := pt.open(s.Target())
	if err != nil {
		s.Abort(err)
		return
	}
	s.Accept()
	mux.Join(s, inside) //nolint:errcheck // both ends have the error
}

func (pt *portServer) open(target string) (*mux.Stream, error) {
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
	case n == network.ProxyPort && pt.h.network.HasProxy(): // the proxy is for the sandbox, not for ingress
		return nil, kind.New(kind.Precondition, "open port", name, "the port is not open")
	}
	sb := pt.h.sandboxes.get(id)
	if sb == nil {
		return nil, kind.New(kind.NotFound, "open port", name, "the sandbox does not run here")
	}
	conn := sb.session.Conn()
	if conn == nil {
		return nil, kind.New(kind.Unavailable, "open port", name, "the sandbox cannot be reached right now, try again")
	}
	ctx, cancel := context.WithTimeout(pt.h.runCtx, portTimeout)
	defer cancel()
	stream, err := conn.Open(ctx, port)
	if err == nil {
		sb.cpu.Requests.Add(1)
	}
	return stream, err
}
