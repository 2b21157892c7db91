package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

func (a *app) forwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "port-forward SANDBOX [LOCAL:]PORT...",
		Short: "Forward local TCP ports to a sandbox",
		Long: `Forward TCP ports of 127.0.0.1 to ports of a sandbox until interrupted. LOCAL defaults
to the same port; with LOCAL 0 a free port is chosen. The local addresses are
printed, one per line.`,
		Example: `  millrace port-forward i0abc 8080
  millrace port-forward i0abc 15432:5432 0:3000`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.CompleteArgs(command.SandboxIDs(), 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forward(cmd.Context(), args[0], args[1:])
		},
	}
}

// forwarding is a local listener for a port of a sandbox.
type forwarding struct {
	ln      net.Listener
	Local   string `json:"local"`
	Port    uint16 `json:"port"`
	Sandbox string `json:"sandbox"`
}

func (a *app) forward(ctx context.Context, sbx string, ports []string) error {
	c, asJSON, err := a.Open()
	if err != nil {
		return err
	}
	if err := command.ByID(ctx, c, command.SandboxIDs(), sbx, func(id string) error {
		s, err := c.Sandbox(ctx, id)
		if err == nil && s.State == client.StateEnded {
			return fmt.Errorf("sandbox %s ended", id)
		}
		sbx = id
		return err
	}); err != nil {
		return err
	}
	all := make([]*forwarding, len(ports))
	for i, p := range ports {
		if all[i], err = listen(ctx, sbx, p); err != nil {
			return err
		}
		defer all[i].ln.Close()
	}
	if err := a.showForwardings(all, asJSON); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range all {
		context.AfterFunc(ctx, func() { f.ln.Close() })
		g.Go(func() error { return a.serve(ctx, c, f) })
	}
	return g.Wait()
}

// listen opens the local port of [LOCAL:]PORT.
func listen(ctx context.Context, sbx, ports string) (*forwarding, error) {
	local, remote, two := strings.Cut(ports, ":")
	if !two {
		remote = local
	}
	from, err := strconv.ParseUint(local, 10, 16)
	to, terr := strconv.ParseUint(remote, 10, 16)
	if err != nil || terr != nil || to == 0 {
		return nil, fmt.Errorf("port %q must be PORT or LOCAL:PORT with numbers up to 65535", ports)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(from, 10)))
	if err != nil {
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			err = errno // without the address
		}
		return nil, fmt.Errorf("listen on local port %d: %w", from, err)
	}
	return &forwarding{ln, ln.Addr().String(), uint16(to), sbx}, nil
}

func (a *app) showForwardings(all []*forwarding, asJSON bool) error {
	if asJSON {
		return a.WriteJSON(all)
	}
	for _, f := range all {
		a.Notef("%s is forwarded to port %d of sandbox %s; Ctrl-C ends it", f.Local, f.Port, f.Sandbox)
	}
	return command.LineEach(a.Env, all, func(f **forwarding) string { return (*f).Local })
}

// serve forwards each connection to f.ln until ctx ends.
func (a *app) serve(ctx context.Context, c *client.Client, f *forwarding) error {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		conn, err := f.ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("accept connections on %s: %w", f.Local, err)
		}
		open.Go(func() {
			if err := tunnel(ctx, c, conn, f); err != nil && ctx.Err() == nil {
				a.Notef("connection to port %d: %v", f.Port, err)
			}
		})
	}
}

// closeWriter is a connection whose write direction can be closed separately.
type closeWriter interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// tunnel forwards a local connection to the sandbox's port and closes it.
func tunnel(ctx context.Context, c *client.Client, conn net.Conn, f *forwarding) error {
	defer conn.Close()
	local, ok := conn.(closeWriter)
	if !ok {
		return errors.New("the local connection is not TCP")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.Open(ctx, &client.Request{
		Method: http.MethodGet, Path: fmt.Sprintf("/v1/store%s/ports/%d", client.SandboxPath(f.Sandbox), f.Port),
		Header: map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"},
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	remote, ok := resp.Body.(closeWriter)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		return fmt.Errorf("the gateway did not switch to tcp (status %d)", resp.StatusCode)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	var g errgroup.Group
	g.Go(func() error { return carry(remote, local, cancel) })
	g.Go(func() error { return carry(local, remote, cancel) })
	return g.Wait()
}

// carry copies one direction and then closes it for writing. An error ends both directions.
func carry(dst, src closeWriter, cancel func()) error {
	_, err := io.Copy(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	if err != nil {
		cancel()
		if client.MessageOf(err) != "" { // a side closed the connection, as clients do
			return nil
		}
	}
	return err
}
