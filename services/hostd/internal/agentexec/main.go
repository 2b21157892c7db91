package agentexec

import (
	"fmt"
	"io"
)

// failed is the exit code of an agent that could not be started.
const failed = 126

// Main runs the agent in place of this program. args are those of the process from the role's name.
func Main(args []string, stderr io.Writer) int {
	fmt.Fprintf(stderr, "%s: %v\n", args[0], Exec(args))
	return failed
}
