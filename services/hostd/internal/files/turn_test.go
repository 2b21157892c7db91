//go:build linux

package files

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// A request that lists many names has a turn meanwhile; other requests do not wait for one.
func TestLargeListsTakeATurn(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/few/f", "")
	r.put(t, path.Join("home/u/deep", strings.Repeat("d/", freeLevels), "f"), "")
	for i := range freeNames + 1 {
		r.put(t, fmt.Sprintf("home/u/many/%d", i), "")
	}
	full := kind.New(kind.Unavailable, "test", "", "no turn")
	for _, tt := range []struct {
		path  string
		depth uint32
		turns int
	}{{"few", 1, 0}, {"few", 100, 0}, {"deep", 1, 0}, {"deep", 100, 1}, {"many", 1, 1}, {".", 100, 1}} {
		begun, ended := 0, 0
		r.cfg.Turn = func() (func(), error) {
			begun++
			return func() { ended++ }, nil
		}
		req := file.Request{Op: file.OpList, Path: tt.path, Depth: tt.depth}
		if _, err := r.ask(t, req); err != nil || begun != tt.turns || ended != tt.turns {
			t.Errorf("list %s to depth %d: %v; %d turns begun and %d ended, want %d", tt.path, tt.depth, err, begun, ended, tt.turns)
		}
		r.cfg.Turn = func() (func(), error) { return nil, full }
		if _, err := r.ask(t, req); errors.Is(err, full) != (tt.turns > 0) {
			t.Errorf("list %s to depth %d without a turn: %v", tt.path, tt.depth, err)
		}
	}
}

// piped is the server's end of a stream within this process.
type piped struct {
	net.Conn
	err error
}

func (*piped) AfterBreak(func()) func() { return func() {} }
func (*piped) Accept()                  {}

func (p *piped) Abort(err error) { p.err = err }

// A client that does not read its response does not keep its turn.
func TestTurnEndsWithoutReader(t *testing.T) {
	r := newRig(t)
	for i := range 4 * freeNames {
		r.put(t, fmt.Sprintf("home/u/many/%d", i), "")
	}
	synctest.Test(t, func(t *testing.T) {
		ended := false
		r.cfg.Turn = func() (func(), error) { return func() { ended = true }, nil }
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() {
			req := file.Request{Op: file.OpList, Path: "many"}
			ours.Write(file.AppendFrame(nil, req.Append(nil)))
		}()
		p := &piped{Conn: theirs}
		if r.Serve(p); !ended || !kind.Is(p.err, kind.Deadline) {
			t.Errorf("turn ended: %v, %v", ended, p.err)
		}
	})
}
