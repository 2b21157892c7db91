package session_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// A write that is repeated after a resume arrives once.
func TestWriteIsRepeatedAfterAResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(echo)
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", `,"pipeStdin":true`))
		const write = `{"processId":"p","chunk":"YQo=","writeId":"1"}`
		for range 3 {
			if got := c.call("process/write", write); got != `{"status":"accepted","accepted":true}` {
				t.Errorf("got %s", got)
			}
			c.close()
			var err error
			if c, err = attach(t, w, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(w.input["p"]); got != "a\n" {
			t.Errorf("the process received %q", got)
		}
		c.call("process/terminate", `{"processId":"p"}`)
	})
}

// A process ends once, however often and when it is terminated.
func TestTerminateAroundTheExit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			<-p.in
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", `,"pipeStdin":true`))
		c.call("process/write", `{"processId":"p","chunk":"YQ==","writeId":"1"}`)
		synctest.Wait()
		for range 2 {
			if got := c.call("process/terminate", `{"processId":"p"}`); got != `{"running":false}` {
				t.Errorf("got %s", got)
			}
		}
		if len(w.signals) != 0 {
			t.Errorf("sent %v", w.signals)
		}
		if r := c.read(`{"processId":"p"}`); !r.Closed || *r.ExitCode != 0 {
			t.Errorf("got %+v", r)
		}
	})
}

// full is a budget that has nothing left.
type full struct{}

func (full) Reserve(int) (func(), error) { return nil, errors.New("full") }

// A tenant without memory gets small pages, and everything in the end.
func TestSmallPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			for range 100 {
				p.print(strings.Repeat("x", 10<<10))
			}
			p.exit(0)
		})
		c := ready(t, w, session.Config{Budget: full{}})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		r := c.read(`{"processId":"p"}`)
		if n := len(r.text()); n == 0 || n > 64<<10 || r.Closed || r.NextSeq != uint64(len(r.Chunks))+1 {
			t.Errorf("%d bytes, %+v", n, r.NextSeq)
		}
	})
}

// Whatever a client sends, the connection stays or ends in order, and no request is answered
// twice.
func FuzzServe(f *testing.F) {
	const hello = `{"id":"i","method":"initialize","params":{"clientName":"c"}}` + "\n" + `{"method":"initialized"}` + "\n"
	f.Add(hello + `{"id":1,"method":"process/start","params":` + start("p", "") + `}` + "\n" + `{"id":2,"method":"process/read","params":{"processId":"p","waitMs":10}}`)
	f.Add(hello + `{"id":1,"method":"process/terminate","params":{"processId":"p"}}` + "\n" + `{"id":1,"method":"fs/walk","params":{"path":"/","options":{"maxEntries":3}}}`)
	f.Add(hello + `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"YQ==","writeId":"1"}}` + "\n[]\n{}")
	f.Add(`{"id":1,"result":{}}`)
	f.Fuzz(func(t *testing.T, script string) {
		bubble(t, func(t *testing.T) {
			w := newWorld(func(_ *world, p *fakeProcess) {
				p.print("x")
				p.exit(0)
			})
			fs := newFiles()
			delete(fs.all, "/tmp/large")
			w.files = fs
			log := &strings.Builder{}
			c := dial(t, w, session.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
			sent := map[string]int{}
			for line := range strings.Lines(script) {
				var m struct {
					ID json.RawMessage `json:"id"`
				}
				if json.Unmarshal([]byte(line), &m) == nil && m.ID != nil {
					sent[string(m.ID)]++
				}
				c.send("%s", line)
			}
			synctest.Wait()
			c.close()
			for {
				m := c.next()
				if m.raw == "" {
					break
				}
				if m.Method != "" || string(m.ID) == "-1" {
					continue
				}
				if sent[string(m.ID)]--; sent[string(m.ID)] < 0 {
					t.Fatalf("an answer to no request: %s", m.raw)
				}
			}
			if strings.Contains(log.String(), "panicked") {
				t.Fatal(log)
			}
		})
	})
}
