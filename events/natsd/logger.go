package natsd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/internal/waiting"
)

// logger passes the server's log to slog, if configured; its notices are debug messages.
type logger struct {
	l            *slog.Logger
	writeFailed  chan<- struct{}
	limitReached chan<- struct{}
	stuck        chan<- struct{}
}

func (s *Server) logger() logger {
	return logger{s.cfg.Slog, s.writeFailed, s.limitReached, s.stuck}
}

var _ server.Logger = logger{}

func (g logger) log(level slog.Level, f string, v []any) string {
	words := fmt.Sprintf(f, v...)
	if g.l != nil {
		g.l.Log(context.Background(), level, "nats: "+words)
	}
	return words
}

func (g logger) Noticef(f string, v ...any) { g.log(slog.LevelDebug, f, v) }
func (g logger) Warnf(f string, v ...any)   { g.log(warnLevel(f), f, v) }
func (g logger) Fatalf(f string, v ...any)  { g.log(slog.LevelError, f, v) }
func (g logger) Debugf(string, ...any)      {}
func (g logger) Tracef(string, ...any)      {}

func (g logger) Errorf(f string, v ...any) {
	words := g.log(slog.LevelError, f, v)
	if isWriteError(words) {
		waiting.Notify(g.writeFailed)
	}
	if strings.Contains(words, "limits exceeded for server") { // a clustered server reached its limit
		waiting.Notify(g.limitReached)
	}
	if strings.Contains(words, "catchup aborted, no leader for stream") {
		waiting.Notify(g.stuck)
	}
}

// rebuilds are prefixes of the server's warnings that an index is older than the messages
// and is rebuilt from them. They follow each kill and mean no loss; damage has messages of
// its own.
var rebuilds = [...]string{
	"Stream state outdated,",
	"Stream state detected prior state,",
	"TTL state is outdated;",
	"Message scheduling state is outdated;",
	"Sourcing state is outdated;",
}

// warnLevel returns the level at which a warning of the server is logged.
func warnLevel(format string) slog.Level {
	for _, r := range rebuilds {
		if strings.Contains(format, r) {
			return slog.LevelInfo
		}
	}
	return slog.LevelWarn
}
