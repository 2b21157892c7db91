package session_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// prints returns a script that prints n lines and exits.
func prints(n int) func(*world, *fakeProcess) {
	return func(_ *world, p *fakeProcess) {
		for i := range n {
			p.print(fmt.Sprintf("line %d\n", i))
		}
		p.exit(3)
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

//
func TestRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := ready(t, newWorld(prints(100)), session.Config{})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		all := c.read(`{"processId":"p","afterSeq":0,"maxBytes":null,"waitMs":0}`)
		if all.text() != lines(100) || all.NextSeq != 103 || !all.Exited || *all.ExitCode != 3 || !all.Closed || all.Failure != "" {
			t.Errorf("got %+v", all)
		}
		for i, chunk := range all.Chunks {
			if chunk.Seq != uint64(i)+1 || chunk.Stream != "stdout" {
				t.Fatalf("chunk %d: %+v", i, chunk)
			}
		}
		text, after, pages := "", uint64(0), 0
		for {
			page := c.read(fmt.Sprintf(`{"processId":"p","afterSeq":%d,"maxBytes":40}`, after))
			text += page.text()
			pages++
			if n := len(page.text()); n > 40 || n == 0 && !page.Closed {
				t.Fatalf("a page of %d bytes", n)
			}
			if page.Closed {
				if !page.Exited || page.NextSeq != 103 {
					t.Errorf("the last page: %+v", page)
				}
				break
			}
			if page.Exited || page.ExitCode != nil {
				t.Fatalf("an exit before its page: %+v", page)
			}
			after = page.NextSeq - 1
		}
		if text != lines(100) || pages < 18 {
			t.Errorf("%d pages: %q", pages, text)
		}
		if one := c.read(`{"processId":"p","maxBytes":0}`); len(one.Chunks) != 1 || one.NextSeq != 2 {
			t.Errorf("maxBytes 0: %+v", one)
		}
		for after, chunks := range map[uint64]int{99: 1, 100: 0, 101: 0, 102: 0, 103: 0, 1 << 40: 0, 1<<64 - 1: 0} {
			r := c.read(fmt.Sprintf(`{"processId":"p","afterSeq":%d,"waitMs":50}`, after))
			if len(r.Chunks) != chunks || !r.Exited || *r.ExitCode != 3 || !r.Closed || r.NextSeq != 103 {
				t.Errorf("after %d: %+v", after, r)
			}
		}
		if got := c.call("process/read", `{"processId":"zzz"}`); got != "-32600 unknown process id zzz" {
			t.Errorf("unknown: %s", got)
		}
	})
}

//
func TestReadWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			advance(3 * time.Second)
			p.append(process.StdinAcked{}) // wakes no reader
			advance(2 * time.Second)
			p.print("late")
			advance(5 * time.Second)
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		tests := []struct {
			params string
			took   time.Duration
			text   string
			next   uint64
			exited bool
		}{
			{`{"processId":"p","waitMs":0}`, 0, "", 1, false},
			{`{"processId":"p","waitMs":250}`, 250 * time.Millisecond, "", 1, false},
			{`{"processId":"p","waitMs":3750}`, 3750 * time.Millisecond, "", 1, false}, // until 4 s
			{`{"processId":"p","waitMs":60000}`, time.Second, "late", 3, false},
			{`{"processId":"p","afterSeq":2,"waitMs":60000}`, 5 * time.Second, "", 4, true},
			{`{"processId":"p","afterSeq":2}`, 0, "", 5, true},
		}
		for _, tt := range tests {
			begin := time.Now()
			r := c.read(tt.params)
			if time.Since(begin) != tt.took || r.text() != tt.text || r.NextSeq < tt.next || r.Exited != tt.exited {
				t.Errorf("%s: got %+v after %v", tt.params, r, time.Since(begin))
			}
			synctest.Wait()
		}
	})
}

// an operator can limit what is retained; the newest output stays.
func TestReadWithACap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := ready(t, newWorld(prints(100)), session.Config{Retain: 100})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		r := c.read(`{"processId":"p"}`)
		if r.Chunks[0].Seq <= 1 || !strings.HasSuffix(r.text(), "line 99\n") || len(r.text()) > 100 || len(r.text()) < 80 || !r.Closed {
			t.Errorf("got %+v", r)
		}
	})
}

// Output that retention removed is skipped; without a cap nothing else ever is.
func TestReadBehindRetention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(prints(100))
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		w.mu.Lock()
		w.byName["p"].first = 93
		w.mu.Unlock()
		r := c.read(`{"processId":"p"}`)
		if len(r.Chunks) != 10 || r.Chunks[0].Seq != 91 || r.NextSeq != 103 {
			t.Errorf("got %+v", r)
		}
	})
}

// An answer stays below the frame size of clients however much there is.
func TestPagesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			for range 40 {
				p.print(strings.Repeat("x", 256<<10))
			}
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		total, after := 0, uint64(0)
		for {
			raw := c.call("process/read", fmt.Sprintf(`{"processId":"p","afterSeq":%d}`, after))
			if len(raw) > 8<<20 {
				t.Fatalf("a page of %d bytes", len(raw))
			}
			r := c.read(fmt.Sprintf(`{"processId":"p","afterSeq":%d}`, after))
			total += len(r.text())
			if after = r.NextSeq - 1; r.Closed {
				break
			}
		}
		if total != 40*256<<10 {
			t.Errorf("%d bytes", total)
		}
	})
}

// A host that was lost makes up no exit: the code is -1 and the event names the reason.
func TestLostProcess(t *testing.T) {
	lost := process.Exit{Cause: process.CauseHostLost}
	for _, observed := range []bool{false, true} { // Exited may be missing
		bubble(t, func(t *testing.T) {
			w := newWorld(func(_ *world, p *fakeProcess) {
				p.print("some")
				p.append(process.Lost{Reason: "the host is silent"})
				if observed {
					p.append(process.Exited{Exit: lost})
				}
				p.append(process.Finished{Exit: lost})
			})
			c := ready(t, w, session.Config{})
			c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
			c.next()
			var got []string
			for {
				m := c.next()
				got = append(got, fmt.Sprintf("%s %d %d", m.Method, m.Params.Seq, m.Params.ExitCode))
				if m.Method == "process/closed" {
					break
				}
			}
			want := "[process/output 1 0 process/output 2 0 process/exited 3 -1 process/closed 4 0]"
			if fmt.Sprint(got) != want {
				t.Errorf("got %v", got)
			}
			for after := range uint64(6) {
				r := c.read(fmt.Sprintf(`{"processId":"p","afterSeq":%d}`, after))
				if r.NextSeq != 5 || !r.Closed || !r.Exited || *r.ExitCode != -1 || !strings.Contains(r.Failure, "host_lost") {
					t.Errorf("after %d: %+v", after, r)
				}
			}
		})
	}
}

// What is missing is visible: a hole must not pass for complete output.
func TestGapsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			p.print("before\n")
			p.append(process.Gap{From: 4, To: 4}, process.Truncated{Stream: process.Stdout, Dropped: 7}, process.Omitted{Stream: process.Stdout, Bytes: 8})
			p.print("after\n")
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		synctest.Wait()
		r := c.read(`{"processId":"p"}`)
		if r.text() != "before\n[millrace: output is missing here]\n[millrace: 7 bytes of stdout were dropped here]\n[millrace: 8 bytes of stdout were not kept]\nafter\n" || r.Chunks[1].Stream != "stderr" {
			t.Errorf("got %q", r.text())
		}
	})
}

// bytes are not text.
func TestBinaryOutput(t *testing.T) {
	bubble(t, func(t *testing.T) {
		all := make([]byte, 0, 1024)
		for i := range 1024 {
			all = append(all, byte(i*7))
		}
		w := newWorld(func(_ *world, p *fakeProcess) {
			for i := range all {
				p.append(process.Wrote{Stream: process.Stderr, Data: all[i : i+1]})
			}
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
		c.next()
		var got []byte
		for m := c.next(); m.Method == "process/output"; m = c.next() {
			got = append(got, m.Params.Chunk...)
		}
		if string(got) != string(all) {
			t.Errorf("%d bytes differ", len(got))
		}
	})
}
