package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/execserver"
)

// execServer runs all services for the clients of one exec-server.
type execServer struct {
	up
	out    io.Writer
	listen string
}

const listenStdio = "stdio://"

func execServerCommand(cfg *command.Config) *cobra.Command {
	own := *cfg
	own.Out = cfg.Err // standard output belongs to the protocol
	s := &execServer{up: up{cfg: &own}, out: cfg.Out}
	c := role(&own, "exec-server", "Serve codex's exec-server protocol", s.stopBound, s.flags, s.run)
	c.Long = `Serve the exec-server protocol of the codex CLI in one process, with a sandbox that
exists until the command ends. All data is in a temporary directory, and nothing is
left behind.

With --listen stdio:// messages are lines on standard input and output, whose end is
the end of the session. With ws://IP:PORT, a loopback address, clients connect without
credentials and may resume their sessions.`
	return c
}

func (s *execServer) flags(f *pflag.FlagSet) {
	f.StringVar(&s.listen, "listen", listenStdio, "stdio://, or ws://IP:PORT")
	s.up.flags(pflag.NewFlagSet("", pflag.ContinueOnError)) // sets the defaults of all others
	s.common.flags(f, "warn")
	s.host.flags(f)
	s.streams.keys.ephemeral()
}

func (s *execServer) run(ctx context.Context) (err error) {
	var ln net.Listener
	if s.listen != listenStdio && s.listen != "stdio" {
		if ln, err = listenLoopback(ctx, s.listen); err != nil {
			return err
		}
		defer ln.Close()
	}
	if s.data, err = os.MkdirTemp("", "millrace-exec-server-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.data)
	s.gateway.Listen, s.gateway.APIKey = "127.0.0.1:0", ""
	s.gateway.MaxTimeout = execServerLifetime
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.host.destroy = func() bool { return true }
	s.ready = func(url string) error {
		defer cancel()
		return s.bridge(ctx, ln, url)
	}
	return s.up.run(ctx)
}

// execServerLifetime is the lifetime of the sandbox, which ends before.
const execServerLifetime = 365 * 24 * time.Hour

// listenLoopback listens at an address in the form ws://IP:PORT.
func listenLoopback(ctx context.Context, addr string) (net.Listener, error) {
	at, ok := strings.CutPrefix(addr, "ws://")
	host, _, err := net.SplitHostPort(at)
	if ip := net.ParseIP(host); !ok || err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("--listen %s: must be stdio:// or ws://IP:PORT with a loopback address", addr)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// bridge connects the clients with the gateway at url. It returns at the end of standard input,
// or when ctx ends.
func (s *execServer) bridge(ctx context.Context, ln net.Listener, url string) error {
	c, err := client.New(url, s.gateway.APIKey)
	if err != nil {
		return err
	}
	box, err := c.CreateSandbox(ctx, client.SandboxSpec{TemplateID: "base", Timeout: int64(execServerLifetime / time.Second), Secure: true})
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	e := execserver.Endpoint{Gateway: url, Path: "/codex/" + box.ID, Key: s.gateway.APIKey}
	if ln == nil {
		e.Query = "on_disconnect=terminate"
		return execserver.Pipe(ctx, e, s.cfg.In, s.out)
	}
	fmt.Fprintf(s.out, "ws://%s\n", ln.Addr())
	return execserver.Serve(ctx, ln, e)
}
