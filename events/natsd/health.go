package natsd

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// laggard is how long a copy of a stream may be behind its leader before that is reported: a
// server that starts catches up first.
const laggard = 30 * time.Second

// problem is a reason why this server cannot store a stream.
type problem struct {
	stream string // empty: JetStream as a whole
	text   string
	broken bool // a write failed, or the files cannot be read
	absent bool // the server has no such stream: it has not got it yet, or cannot open its files
}

// problems returns what the server's own health check finds. It looks at streams only while
// the server is in contact with the leader of its cluster.
func problems(ns *server.Server) []problem {
	status := ns.Healthz(&server.HealthzOptions{Details: true})
	var all []problem
	if status.Error != "" {
		all = append(all, problem{text: status.Error})
	}
	for _, e := range status.Errors {
		all = append(all, problem{stream: e.Stream, text: e.Error, broken: isBroken(e.Error), absent: isAbsent(e.Error)})
	}
	return all
}

// blind reports whether the check could not look at the streams.
func blind(all []problem) bool {
	return slices.ContainsFunc(all, func(p problem) bool { return p.stream == "" && !p.broken })
}

// isBroken reports whether the server cannot write a stream at all, rather than having to
// catch up with its leader first.
func isBroken(text string) bool {
	return strings.Contains(text, "write error") || strings.Contains(text, "could not be recovered")
}

// isAbsent reports whether the server does not have a stream that its cluster assigned to it.
// A server that starts has it soon; one that cannot open the files never has.
func isAbsent(text string) bool {
	return strings.Contains(text, "stream not found") || strings.Contains(text, "stream assignment error")
}

// noSpace reports whether a write failed because the disk was full: it succeeds when there
// is room again, so the files are not damaged.
func noSpace(text string) bool {
	for _, s := range []string{"no space left", "disk quota exceeded", "insufficient", "limits exceeded"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// lasting remembers since when a problem exists.
type lasting struct{ since map[problem]time.Time }

// see takes the problems of the moment and returns those that are to be reported: what is
// broken, at once, and what lasts. A stream that is absent for so long is broken.
func (l *lasting) see(now time.Time, all []problem) []problem {
	since := make(map[problem]time.Time, len(all))
	var out []problem
	for _, p := range all {
		began, ok := l.since[p]
		if !ok {
			began = now
		}
		since[p] = began
		lasts := now.Sub(began) >= laggard
		if p.broken || lasts {
			p.broken = p.broken || p.absent
			out = append(out, p)
		}
	}
	l.since = since
	return out
}
