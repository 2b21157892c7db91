package convruntime

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/events/bootstrap"
)

// Main runs a role of the program and returns its exit code. args are those after bootstrap.Arg.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	role, ok := bootstrap.ParseRole(args)
	if !ok {
		fmt.Fprintf(stderr, "%s: unexpected arguments %q\n", bootstrap.Arg, args)
		return 2
	}
	protect()
	values, others := bootstrap.Parse(os.Environ())
	dir, err := configDir()
	if err == nil && role.Write {
		err = dir.configure(role, values)
	}
	if err == nil && role.Runtime {
		// A reader that is gone is an error of the write. The signal is caught, not ignored, because
		// children inherit that.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		err = run(dir, others, stdin, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", bootstrap.Arg, err)
		return 1
	}
	return 0
}
