package session

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/sandbox"
)

const (
	// metaCommand is the key of the metadata with the command of a batch session.
	metaCommand = "backendai.command"
	// metaUnwaited is the key of the metadata of a session whose client may not wait until it runs.
	metaUnwaited = "backendai.unwaited"
	maxCommand   = 64 << 10
)

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

// Unwaited reports whether the request that created a session may have ended before it ran.
func Unwaited(st *sandbox.State) bool { return st.Request.Metadata[metaUnwaited] != "" }

// typed sets the type of a session, and the command of a batch session.
func (w *Wanted) typed(name, command string) error {
	switch {
	case name == "interactive":
		return nil
	case name != "batch":
		return invalid("type: must be interactive or batch")
	case command == "" || len(command) > maxCommand || strings.ContainsRune(command, 0):
		return invalid("startupCommand: a batch session needs a command of at most %d bytes", maxCommand)
	}
	w.Command = command
	return nil
}
