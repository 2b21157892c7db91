package file

import "time"

// A watch is a process in the sandbox whose program is the shim itself: its events are its
// stdout, stored and read like any other, and a signal ends it. SIGCONT keeps it alive.

// WatchCmd is the name of the watch program.
const WatchCmd = "millrace:watch"

// OverflowField is the field of a filesystem.FilesystemEvent that reports lost events.
const OverflowField = 1000

// Watch describes a directory to watch.
type Watch struct {
	Path      string        // absolute, or relative to the user's home
	User      string        // empty: the sandbox's default user
	Recursive bool          // include all directories below
	Entries   bool          // include the changed entries
	Network   bool          // accept a network file system, whose changes by other clients go unnoticed
	Idle      time.Duration // time without a SIGCONT after which the watch ends; 0: never
}

// Args returns w as arguments for WatchCmd, except for User, which is the process's.
func (w *Watch) Args() []string {
	args := []string{w.Path, w.Idle.String()}
	for i, set := range [...]bool{w.Recursive, w.Entries, w.Network} {
		if set {
			args = append(args, watchFlags[i])
		}
	}
	return args
}

var watchFlags = [...]string{"recursive", "entries", "network"}

// ParseWatch parses the result of Args.
func ParseWatch(user string, args []string) (Watch, error) {
	if len(args) < 2 {
		return Watch{}, ErrMalformed
	}
	w := Watch{Path: args[0], User: user}
	var err error
	if w.Idle, err = time.ParseDuration(args[1]); err != nil || w.Idle < 0 {
		return w, ErrMalformed
	}
	for _, a := range args[2:] {
		switch a {
		case watchFlags[0]:
			w.Recursive = true
		case watchFlags[1]:
			w.Entries = true
		case watchFlags[2]:
			w.Network = true
		default:
			return w, ErrMalformed
		}
	}
	r := Request{Op: OpStat, Path: w.Path, User: user}
	return w, r.Check()
}
