package process

import "strings"

// attemptMark separates an input's key from the unique part.
const attemptMark = "~"

// InputAttempt returns the id of a command that attempts to send the input with a given key to
// a process. Of all commands with one key, the process gets the first, and all get its
// reply. unique distinguishes the attempts.
func InputAttempt(key, unique string) string { return key + attemptMark + unique }

// InputKey returns the key in an id made by InputAttempt; "" for any other id.
func InputKey(command string) string {
	key, _, ok := strings.Cut(command, attemptMark)
	if !ok {
		return ""
	}
	return key
}
