package convruntime

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/agentrun"
)

// Main runs a role of the program and returns its exit code. args are those after bootstrap.Arg.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	role, ok := bootstrap.ParseRole(args)
	if !ok {
		fmt.Fprintf(stderr, "%s: unexpected arguments %q\n", bootstrap.Arg, args)
		return 2
	}
	if role.Desktop {
		return runDesktop(os.Environ(), stdout, stderr)
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
	if err == nil && role.Agent != bootstrap.NoAgent {
		if values, err = dir.read(bootstrap.EnvFile); err == nil {
			return agentrun.Run(role.Agent, filepath.Join(string(dir), bootstrap.EnvFile), values, withValues(others, filled(values)), stderr)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", bootstrap.Arg, err)
		return 1
	}
	return 0
}

// maxVariable is the maximum size of a variable that the kernel accepts.
const maxVariable = 128<<10 - 1

// filled returns the values that an agent has as variables: env.json has the empty and the oversized as well.
func filled(values map[string]string) map[string]string {
	out := make(map[string]string, len(values))
	for name, value := range values {
		if value != "" && len(name)+1+len(value) < maxVariable {
			out[name] = value
		}
	}
	return out
}
