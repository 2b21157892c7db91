package process

import "strings"

// tryMark parts the key of an input from what tells its tries apart.
const tryMark = "~"

// InputTry is the id of a command that tries to give a process the input that a
// key stands for: of all such commands with one key, the process is given the
// first, and each is answered as that was. unique tells the tries apart.
func InputTry(key, unique string) string { return key + tryMark + unique }

// InputKey is the key of a command's id that InputTry made; empty for any other.
func InputKey(command string) string {
	key, _, ok := strings.Cut(command, tryMark)
	if !ok {
		return ""
	}
	return key
}
