package natsd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	roomWanted = 16 << 20 // bytes that must fit on the disk before the server begins again
	roomLook   = 500 * time.Millisecond
	mendPause  = 5 * time.Second // before the second beginning, twice that before the third,
	mendPauses = time.Minute     // and so on up to this,
	mendWell   = 5 * time.Minute // until it went well for so long
)

// mend begins the server again where the disk has more for it than when it began and it
// needs that, or where something could not be written, as on a disk that was full: the
// server does not write to such a stream any more, also when there is room again, until it
// begins anew. Nothing is lost by that: what it could not store it has not acknowledged, and
// who wanted it stored tries until it is.
func (s *Server) mend(ctx context.Context) {
	defer close(s.over)
	var pause time.Duration
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hurt:
		case <-s.full:
			if s.limit() < s.given+s.given/4 {
				continue // it is as full as it was told to get
			}
		}
		if pause = max(min(2*pause, mendPauses), mendPause); time.Since(last) > mendWell {
			pause = 0
		}
		if !rest(ctx, pause) {
			return
		}
		for !s.room() {
			if !rest(ctx, roomLook) {
				return
			}
		}
		s.again()
		last = time.Now()
	}
}

// room reports whether the disk takes something.
func (s *Server) room() bool {
	f, err := os.Create(filepath.Join(s.cfg.Dir, ".room"))
	if err != nil {
		return false
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the next look takes what is left
	defer f.Close()           //nolint:errcheck // Sync told
	block := make([]byte, 1<<20)
	for range roomWanted / len(block) {
		if _, err := f.Write(block); err != nil {
			return false
		}
	}
	return f.Sync() == nil
}

// again begins the server again. Where that fails it is tried again.
func (s *Server) again() {
	old := s.ns.Load()
	old.Shutdown()
	old.WaitForShutdown()
	select {
	case <-s.hurt: // by what has ended
	default:
	}
	ns, err := s.start()
	if err != nil {
		s.logger().Errorf("begin again after a write error: %v", err)
		return
	}
	s.ns.Store(ns)
	s.logger().Warnf("began again, because it could not store everything before")
}

func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// logger gives the server's words to slog, if there is one; its notices are our debug.
// There is no other way to hear of a stream that is not written any more.
type logger struct {
	l    *slog.Logger
	hurt chan<- struct{}
	full chan<- struct{}
}

func (s *Server) logger() logger { return logger{s.cfg.Slog, s.hurt, s.full} }

var _ server.Logger = logger{}

func (g logger) say(level slog.Level, f string, v []any) string {
	words := fmt.Sprintf(f, v...)
	if g.l != nil {
		g.l.Log(context.Background(), level, "nats: "+words)
	}
	return words
}

func (g logger) Noticef(f string, v ...any) { g.say(slog.LevelDebug, f, v) }
func (g logger) Warnf(f string, v ...any)   { g.say(slog.LevelWarn, f, v) }
func (g logger) Fatalf(f string, v ...any)  { g.say(slog.LevelError, f, v) }
func (g logger) Debugf(string, ...any)      {}
func (g logger) Tracef(string, ...any)      {}

func (g logger) Errorf(f string, v ...any) {
	words := g.say(slog.LevelError, f, v)
	// Of a stream, a consumer, or a cluster's log; or of all, where a cluster's server
	// has no room.
	if strings.Contains(words, "write error") || strings.Contains(words, "will be DISABLED") {
		poke(g.hurt)
	}
	if strings.Contains(words, "limits exceeded for server") {
		poke(g.full)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
