package natsd

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// lagTolerance is how long a copy of a stream may lag behind its leader before that is reported:
// a starting server has to catch up first.
const lagTolerance = 30 * time.Second

// problem is a reason why this server cannot store a stream.
type problem struct {
	stream string // empty: JetStream as a whole
	text   string
	broken bool // a write failed, or the files are unreadable
	absent bool // the server lacks the stream: it has not received it yet, or cannot open its files
}

// problems returns the findings of the server's own health check, which covers streams only
// while the server is in contact with the leader of its cluster.
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

// blind reports whether the check could not cover the streams.
func blind(all []problem) bool {
	return slices.ContainsFunc(all, func(p problem) bool { return p.stream == "" && !p.broken })
}

// isBroken reports whether the server cannot write a stream at all, as opposed to one that
// must catch up with its leader first.
func isBroken(text string) bool {
	return strings.Contains(text, "write error") || strings.Contains(text, "could not be recovered")
}

// isAbsent reports whether the server lacks a stream that its cluster assigned to it. A
// starting server gets it soon; one that cannot open the files never does.
func isAbsent(text string) bool {
	return strings.Contains(text, "stream not found") || strings.Contains(text, "stream assignment error")
}

// noSpace reports whether a write failed because the disk was full. It succeeds once there
// is space again, so the files are not damaged.
func noSpace(text string) bool {
	for _, s := range []string{"no space left", "disk quota exceeded", "insufficient", "limits exceeded"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// lasting records since when each problem exists.
type lasting struct{ since map[problem]time.Time }

// see takes the current problems and returns those to report: broken streams at once,
// others when they last. A stream that is absent for that long is broken.
func (l *lasting) see(now time.Time, all []problem) []problem {
	since := make(map[problem]time.Time, len(all))
	var out []problem
	for _, p := range all {
		began, ok := l.since[p]
		if !ok {
			began = now
		}
		since[p] = began
		lasts := now.Sub(began) >= lagTolerance
		if p.broken || lasts {
			p.broken = p.broken || p.absent
			out = append(out, p)
		}
	}
	l.since = since
	return out
}

// repeated is a message that the server logs every few seconds while a problem lasts.
type repeated struct{ since, last time.Time }

// repeatGap is the time without the message after which the problem was over.
const repeatGap = 15 * time.Second

// lasts records that the message was logged, and reports whether the problem has lasted so long
// that it does not pass by itself.
func (r *repeated) lasts(now time.Time) bool {
	if now.Sub(r.last) > repeatGap {
		r.since = now
	}
	r.last = now
	if now.Sub(r.since) < lagTolerance {
		return false
	}
	*r = repeated{}
	return true
}
