package file

import "time"

// A watch is a process of the sandbox's whose program is the shim itself: what it
// tells is its stdout, stored and read like any other, and a signal ends it.
// SIGCONT says that somebody still watches.

// WatchCmd is the name of that program.
const WatchCmd = "millrace:watch"

// OverflowField is the field of a filesystem.FilesystemEvent that says that
// events were lost.
const OverflowField = 1000

// Watch says what to watch.
type Watch struct {
	Path      string        // absolute, or relative to the user's home
	User      string        // empty: the sandbox's default user
	Recursive bool          // also all directories below
	Entries   bool          // with what was found where something happened
	Network   bool          // also where others may change files unseen
	Idle      time.Duration // ends when nobody said for so long that he watches; 0: never
}

// Args is w as the arguments of WatchCmd; User goes with the process.
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

// ParseWatch reads what Args gave.
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
