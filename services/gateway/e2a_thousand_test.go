package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"
	"golang.org/x/sync/errgroup"
)

// follower is a client that keeps its position.
type follower struct {
	s          chat
	sent       int
	got, after []string // messages before and after the position
	at         string
}

// read reads messages until one is text.
func (f *follower) read(ws *fws.Conn, text string) error {
	for {
		_, raw, err := ws.ReadMessage()
		if err != nil {
			return err
		}
		var m systemMessage
		if json.Unmarshal(raw, &m) == nil && m.Event == "position" {
			f.at, f.got, f.after = m.After, append(f.got, f.after...), nil
			continue
		}
		if f.after = append(f.after, string(raw)); string(raw) == text {
			return nil
		}
	}
}

// talk sends numbers, one after the answer to the other, until the connection ends. begun is called after
// the first one.
func (f *follower) talk(ws *fws.Conn, begun func()) {
	for {
		text := fmt.Sprintf("%d.", f.sent)
		f.sent++
		if ws.WriteMessage(fws.TextMessage, []byte(text)) != nil || f.read(ws, text) != nil {
			return
		}
		if f.sent == 1 {
			begun()
		}
	}
}

// check connects to another gateway, and returns an error unless each number that was answered, or at most
// one more, has been received once and in order.
func (f *follower) check(at *fixture) error {
	f.after = nil // it arrives again
	ws, _, err := fws.DefaultDialer.Dial("ws://"+at.addr+"/v1/sessions/"+f.s.ID+"/ws?after="+f.at, http.Header{"Authorization": {"Bearer " + f.s.JWT}})
	if err != nil {
		return err
	}
	defer ws.Close()
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	if err := ws.WriteMessage(fws.TextMessage, []byte("end")); err != nil {
		return err
	}
	if err := f.read(ws, "end"); err != nil {
		return err
	}
	all := slices.Concat(f.got, f.after[:len(f.after)-1])
	for i, text := range all {
		if text != fmt.Sprintf("%d.", i) {
			return fmt.Errorf("message %d is %q", i, text)
		}
	}
	if len(all) != f.sent && len(all) != f.sent-1 {
		return fmt.Errorf("%d messages of %d", len(all), f.sent)
	}
	return nil
}

// A gateway dies under many connections, each of which finds its messages at another gateway. With
// MILLRACE_E2E_SOAK there are 1,000.
func TestConnectionsOfADeadGateway(t *testing.T) {
	count := 100
	if os.Getenv("MILLRACE_E2E_SOAK") != "" {
		count = 1000
	}
	u := newDeathFixture(t)
	v := u.victim(t, 1<<30)
	all := make([]*follower, count)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range all {
		all[i] = &follower{}
		g.Go(func() error {
			all[i].s = u.createSession(t, strings.ReplaceAll(sessionBody, `"you"`, fmt.Sprintf(`"user%d"`, i)))
			return nil
		})
	}
	g.Wait()
	if t.Failed() {
		return
	}
	began := time.Now()
	var begun, over sync.WaitGroup
	for _, f := range all {
		begun.Add(1)
		over.Go(func() {
			begun := sync.OnceFunc(begun.Done)
			defer begun()
			ws, err := v.dial(&f.s, "?after=")
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			defer ws.Close()
			ws.SetReadDeadline(time.Now().Add(time.Minute))
			f.talk(ws, begun)
		})
	}
	begun.Wait()
	v.end()
	over.Wait()
	killed := time.Now()
	sent := 0
	var checks errgroup.Group
	for _, f := range all {
		sent += f.sent
		checks.Go(func() error { return f.check(u.fixture) })
	}
	if err := checks.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d connections, %d messages in %v; all had continued %v after the death", count, sent, killed.Sub(began), time.Since(killed))
}
