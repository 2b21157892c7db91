// Command mcp-gateway is what E2B's SDK starts in a sandbox that is created with
// mcp (WIRE-E2B 3.2): it runs the servers that the configuration names, speaks to
// them over their stdin and stdout, and serves the tools, prompts and resources of
// all as one server of the streamable HTTP transport, at port 50005, /mcp, to who
// has the token. It asks nothing of anybody else: what servers fetch, they and their
// installCmd fetch themselves, as far as the sandbox lets them.
//
//	GATEWAY_ACCESS_TOKEN=... mcp-gateway --config '{"github/OWNER/REPO": {"runCmd": "..."}}'
//
// returns when all servers answer, and leaves the gateway behind; or says what is
// wrong, and leaves nothing.
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
	serveVerb     = "serve" // the gateway itself: its configuration is on stdin, what it says first goes to fd 3
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
		return leave(args[1])
	case len(args) == 1 && args[0] == serveVerb:
		return serve()
	case len(args) > 0 && args[0] == "pull":
		return fmt.Errorf("%s: %w", strings.Join(args[1:], " "), errCatalogue)
	}
	return errors.New("usage: mcp-gateway --config JSON")
}

// leave starts the gateway in a session of its own and waits until it is ready.
func leave(config string) error {
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
	defer log.Close() //nolint:errcheck // the gateway has its own
	word, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer word.Close()                                                                //nolint:errcheck // it was read
	gateway := exec.CommandContext(context.Background(), "/proc/self/exe", serveVerb) // it outlives us
	gateway.Stdin, gateway.Stdout, gateway.Stderr = strings.NewReader(config), log, log
	gateway.ExtraFiles = []*os.File{theirs}
	gateway.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = gateway.Start()
	theirs.Close() //nolint:errcheck // the gateway has its own
	if err != nil {
		return err
	}
	said, err := io.ReadAll(word)
	switch {
	case err != nil:
		return err
	case string(said) == ready:
		return nil
	case len(said) == 0:
		return errors.New("the gateway ended: see " + logFile)
	}
	return errors.New(string(said))
}

// ready is what serve says first when all is well.
const ready = "ready"

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	syscall.CloseOnExec(3)
	first := os.NewFile(3, "first word")
	say := func(word string) {
		io.WriteString(first, word) //nolint:errcheck // nobody waits any more
		first.Close()               //nolint:errcheck // nobody waits any more
	}
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	token := os.Getenv(tokenVariable)
	os.Unsetenv(tokenVariable) //nolint:errcheck // servers are not to know it
	err = gateway(ctx, raw, token, func() { say(ready) })
	if err != nil {
		say(err.Error())
	}
	return err
}
