package session

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/sandbox"
)

// metaCommand is the key of the metadata with the command of a batch session.
const metaCommand = "backendai.command"

// Command returns the command of a batch session, and false for a session of another type.
func Command(st *sandbox.State) (string, bool) {
	command, ok := st.Request.Metadata[metaCommand]
	return command, ok
}

// exited begins the cause of the end of a batch session; the exit code of its command follows.
const exited = "exited "

// Exited returns the cause of the end of a session whose command ended with an exit code.
func Exited(code int) string { return exited + strconv.Itoa(code) }

// ExitCode returns the exit code in the cause of an end, and false if a command did not cause it.
func ExitCode(cause string) (int, bool) {
	digits, ok := strings.CutPrefix(cause, exited)
	code, err := strconv.Atoi(digits)
	return code, ok && err == nil
}
