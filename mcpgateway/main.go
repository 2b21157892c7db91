// Command mcp-gateway is the program that E2B's SDK starts in a sandbox created with the
// option mcp. It runs the configured MCP servers over stdin and stdout. It serves the
// tools, prompts and resources of all of them as one server with the streamable HTTP
// transport, at port 50005, /mcp, for clients with the token. It makes no other connections, except
// to clone the servers' repositories; their installCmd may, if the sandbox's network
// allows that.
//
//	GATEWAY_ACCESS_TOKEN=... mcp-gateway --config '{"github/OWNER/REPO": {"runCmd": "..."}}'
//
// returns when all servers respond, and leaves the gateway running. On an error it prints
// the cause and leaves nothing running.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

const (
	tokenVariable = "GATEWAY_ACCESS_TOKEN"
	serveVerb     = "serve" // runs the gateway: configuration on stdin, its first status to fd 3
	logFile       = "/var/log/mcp-gateway.log"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-gateway:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "--config":
		return startDetached(args[1])
	case len(args) == 1 && args[0] == serveVerb:
		return serve()
	case len(args) > 0 && args[0] == "pull":
		return fmt.Errorf("%s: %w", strings.Join(args[1:], " "), errCatalog)
	}
	return errors.New("usage: mcp-gateway --config JSON")
}

// startDetached starts the gateway in a new session and waits until it is ready.
func startDetached(config string) error {
	if _, err := parse([]byte(config)); err != nil {
		return err
	}
	if os.Getenv(tokenVariable) == "" {
		return errors.New(tokenVariable + " is required")
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	status, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer status.Close()
	gateway := exec.CommandContext(context.Background(), "/proc/self/exe", serveVerb) // it outlives this process
	gateway.Stdin, gateway.Stdout, gateway.Stderr = strings.NewReader(config), log, log
	gateway.ExtraFiles = []*os.File{theirs}
	gateway.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = gateway.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	report, err := io.ReadAll(status)
	switch {
	case err != nil:
		return err
	case string(report) == ready:
		return nil
	case len(report) == 0:
		return errors.New("the gateway exited: see " + logFile)
	}
	return errors.New(string(report))
}

// ready is the first status of serve if all servers respond.
const ready = "ready"

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	syscall.CloseOnExec(3)
	pipe := os.NewFile(3, "status")
	sendStatus := func(text string) {
		io.WriteString(pipe, text) //nolint:errcheck // the parent may have exited
		pipe.Close()
	}
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	token := os.Getenv(tokenVariable)
	os.Unsetenv(tokenVariable)
	err = gateway(ctx, raw, token, func() { sendStatus(ready) })
	if err != nil {
		sendStatus(err.Error())
	}
	return err
}
