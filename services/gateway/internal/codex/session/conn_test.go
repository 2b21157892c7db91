package session_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// echo prints ready, then each line of input with echo: before it, until it is killed.
func echo(_ *world, p *fakeProcess) {
	p.print("ready\n")
	for {
		select {
		case in := <-p.in:
			p.print("echo:" + string(in))
		case <-p.killed:
			p.die()
			return
		}
	}
}

// quiet runs until it is killed.
func quiet(_ *world, p *fakeProcess) {
	<-p.killed
	p.die()
}

// the session of the README.
func TestExampleSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := dial(t, newWorld(echo), session.Config{})
		steps := []struct {
			send string
			want []string // parts of the messages that follow
		}{
			{`{"id":1,"method":"initialize","params":{"clientName":"example-client"}}`, []string{`{"id":1,"result":{"sessionId":"s1","environmentInfo":{"shell":{"name":"bash","path":"/bin/bash"},"cwd":"file:///home/user"`}},
			{`{"method":"initialized","params":{}}`, nil},
			{`{"id":2,"method":"process/start","params":{"processId":"proc-1","argv":["bash","-lc","x"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"arg0":null}}`, []string{
				`{"id":2,"result":{"processId":"proc-1","sandboxType":"none"}}`,
				`{"method":"process/output","params":{"processId":"proc-1","seq":1,"stream":"pty","chunk":"cmVhZHkK"}}`}},
			{`{"id":3,"method":"process/write","params":{"processId":"proc-1","chunk":"aGVsbG8K"}}`, []string{
				`{"id":3,"result":{"status":"accepted","accepted":true}}`,
				`{"method":"process/output","params":{"processId":"proc-1","seq":2,"stream":"pty","chunk":""}}`,
				`{"method":"process/output","params":{"processId":"proc-1","seq":3,"stream":"pty","chunk":"ZWNobzpoZWxsbwo="}}`}},
			{`{"id":4,"method":"process/terminate","params":{"processId":"proc-1"}}`, []string{
				`{"id":4,"result":{"running":true}}`,
				`{"method":"process/output","params":{"processId":"proc-1","seq":4,"stream":"pty","chunk":""}}`,
				`{"method":"process/exited","params":{"processId":"proc-1","seq":5,"exitCode":137,"sandboxDenied":false}}`,
				`{"method":"process/closed","params":{"processId":"proc-1","seq":6}}`}},
			{`{"id":5,"method":"process/terminate","params":{"processId":"proc-1"}}`, []string{`{"id":5,"result":{"running":false}}`}},
			{`{"id":6,"method":"process/terminate","params":{"processId":"other"}}`, []string{`{"id":6,"result":{"running":false}}`}},
		}
		for _, s := range steps {
			c.send("%s", s.send)
			got := map[string]bool{} // answers and notifications may overtake each other
			var all []string
			for range s.want {
				m := c.next()
				all = append(all, m.raw)
				for _, w := range s.want {
					if strings.HasPrefix(m.raw, w) {
						got[w] = true
					}
				}
			}
			if len(got) != len(s.want) {
				t.Fatalf("after %s: got %s, want %s", s.send, strings.Join(all, "\n"), strings.Join(s.want, "\n"))
			}
		}
	})
}

//
func TestHandshakeAtTheWire(t *testing.T) {
	const initialize = `{"id":1,"method":"initialize","params":{"clientName":"c"}}`
	tests := []struct {
		name   string
		send   []string
		want   string // a part of the last message
		closed bool
	}{
		{"start first", []string{`{"id":7,"method":"process/start","params":` + start("p", "") + `}`}, `{"error":{"code":-32600,"message":"client must call initialize before using exec methods"},"id":7}`, false},
		{"bad params first", []string{`{"id":7,"method":"process/start","params":{}}`}, `{"error":{"code":-32602`, false},
		{"before initialized", []string{initialize, `{"id":7,"method":"process/terminate","params":{"processId":"p"}}`}, `client must send initialized before using exec methods`, false},
		{"twice", []string{initialize, `{"id":"x","method":"initialize","params":{"clientName":"c"}}`}, `{"error":{"code":-32600,"message":"initialize may only be sent once per connection"},"id":"x"}`, false},
		{"not JSON", []string{`{`}, `{"error":{"code":-32600,"message":"the message is not JSON"},"id":-1}`, false},
		{"a batch", []string{`[` + initialize + `]`}, `batches are not supported"},"id":-1}`, false},
		{"a null id", []string{`{"id":null,"method":"initialize","params":{"clientName":"c"}}`}, `"id":-1}`, false},
		{"another notification", []string{initialize, `{"method":"foo"}`}, `"id":-1}`, true},
		{"initialized first", []string{`{"method":"initialized"}`}, `"id":-1}`, true},
		{"a response", []string{initialize, `{"id":9,"result":{}}`}, `"id":-1}`, true},
		{"an unknown method", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"zzz"}`}, `{"error":{"code":-32600,"message":"unknown method: zzz"},"id":2}`, false},
		{"a method that is not offered", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"capabilityRoots/discoverV1","params":{}}`}, `{"error":{"code":-32601`, false},
		{"files without a file system", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"fs/getMetadata","params":{"path":"/"}}`}, `{"error":{"code":-32601`, false},
		{"http without a client", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"http/request","params":{"method":"GET","url":"http://a/","requestId":"r"}}`}, `{"error":{"code":-32601`, false},
		{"status", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"environment/status"}`}, `{"id":2,"result":{"status":"ready"}}`, false},
		{"info", []string{initialize, `{"method":"initialized"}`, `{"id":2,"method":"environment/info","params":null}`}, `"shell":{"name":"bash"`, false},
		{"a failed initialize may be repeated", []string{`{"id":1,"method":"initialize","params":{"clientName":"c","resumeSessionId":"gone"}}`, initialize}, `"sessionId":"s1"`, false},
		{"an unknown session", []string{`{"id":1,"method":"initialize","params":{"clientName":"c","resumeSessionId":"gone"}}`}, `{"error":{"code":-32600,"message":"unknown session id gone"},"id":1}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := dial(t, newWorld(quiet), session.Config{})
				last := ""
				for _, s := range tt.send {
					c.send("%s", s)
					if !strings.Contains(s, `"initialized"`) || tt.closed {
						if m := c.next(); m.raw != "" {
							last = m.raw
						}
					}
				}
				synctest.Wait()
				if !strings.Contains(last, tt.want) {
					t.Errorf("got %s, want %s", last, tt.want)
				}
				select {
				case <-c.pipe.closed:
					if !tt.closed {
						t.Error("the connection was closed")
					}
				default:
					if tt.closed {
						t.Error("the connection is open")
					}
				}
			})
		})
	}
}

// A client takes -32600 as final, so that everything that may pass is -32010.
func TestAttachErrors(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{kind.New(kind.Conflict, "", "", ""), "-32010 session s is already attached to another connection"},
		{kind.New(kind.Unavailable, "", "", "the log is not ready"), "-32010 the session cannot be attached yet: the log is not ready"},
		{kind.New(kind.Deadline, "", "", ""), "-32010"},
		{kind.New(kind.NotFound, "", "", ""), "-32600 unknown session id s"},
		{kind.New(kind.Internal, "", "", ""), "-32603"},
	}
	for _, tt := range tests {
		bubble(t, func(t *testing.T) {
			w := newWorld(quiet)
			w.openErr = tt.err
			c := dial(t, w, session.Config{})
			if got := c.call("initialize", `{"clientName":"c","resumeSessionId":"s"}`); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%v: got %s", tt.err, got)
			}
		})
	}
}

//
func TestStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		if got := c.call("process/start", `{"processId":">.*","argv":["a","b"],"cwd":"file:///tmp/x%20y","env":{"A":"1"},"tty":false,"pipeStdin":true,"arg0":"zero",
			"envPolicy":{"inherit":"all","ignoreDefaultExcludes":false,"exclude":[],"set":{"B":"2"},"includeOnly":[]}}`); got != `{"processId":"\u003e.*","sandboxType":"none"}` {
			t.Errorf("got %s", got)
		}
		cmd := w.byName[">.*"].cmd
		if fmt.Sprint(cmd.Env) != "map[A:1 B:2 HOME:/home/user PATH:/bin]" || *cmd.Arg0 != "zero" || cmd.Cwd != "/tmp/x y" || !cmd.Stdin || cmd.Confinement != nil {
			t.Errorf("started %+v", cmd)
		}
		if got := c.call("process/start", start(">.*", "")); got != "-32600 process >.* already exists" {
			t.Errorf("again: %s", got)
		}
		for range 2 { // a failed start frees the id
			if got := c.call("process/start", strings.Replace(start("m", ""), `"a"`, `"missing"`, 1)); got != "-32603 No such file or directory (os error 2)" {
				t.Errorf("missing: %s", got)
			}
		}
		if got := c.call("process/start", start("", "")); !strings.Contains(got, `"processId":""`) {
			t.Errorf("an empty id: %s", got)
		}
		confined := `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"}}`
		if got := c.call("process/start", start("confined", confined)); got != `{"processId":"confined","sandboxType":"linuxSeccomp"}` || w.byName["confined"].cmd.Confinement.Read[0] != "/" {
			t.Errorf("confined: %s", got)
		}
		for _, p := range w.byName {
			close(p.killed)
		}
	})
}

// initialize is answered within a second, even if the sandbox is too busy to describe itself.
func TestInitializeWaitsLessThanASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		w.busy = true
		c := dial(t, w, session.Config{})
		began := time.Now()
		c.send(`{"id":1,"method":"initialize","params":{"clientName":"x"}}`)
		if got := c.next(); string(got.Result) != `{"sessionId":"s1"}` {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took >= time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}

// AMB-32.
func TestWrite(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString([]byte("in"))
	const accepted = `{"status":"accepted","accepted":true}`
	tests := []struct {
		name, process, more, want string
	}{
		{"a terminal", "tty", "", accepted},
		{"a pipe", "pipe", `,"writeId":"1"`, accepted},
		{"no stdin, without writeId", "none", "", "-32600 stdin is closed for process none"},
		{"no stdin, with writeId", "none", `,"writeId":"1"`, `{"status":"stdinClosed","accepted":false}`},
		{"unknown, without writeId", "zzz", "", "-32600 unknown process id zzz"},
		{"unknown, with writeId", "zzz", `,"writeId":"1"`, `{"status":"unknownProcess","accepted":false}`},
		{"after the exit, without writeId", "over", "", accepted},
		{"after the exit, with writeId", "over", `,"writeId":"1"`, accepted},
		{"an empty writeId", "tty", `,"writeId":""`, "-32602 writeId must not be empty"},
	}
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			if p.proc.Name == "over" {
				p.exit(0)
				return
			}
			<-p.killed
			p.die()
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", strings.Replace(start("tty", ""), "false", "true", 1))
		c.call("process/start", start("pipe", `,"pipeStdin":true`))
		c.call("process/start", start("none", ""))
		c.call("process/start", start("over", `,"pipeStdin":true`))
		synctest.Wait()
		for _, tt := range tests {
			got := c.call("process/write", fmt.Sprintf(`{"processId":%q,"chunk":%q%s}`, tt.process, b64, tt.more))
			if got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
		}
		if got := c.call("process/write", `{"processId":"tty","chunk":"%%%"}`); !strings.HasPrefix(got, "-32602") {
			t.Errorf("not base64: %s", got)
		}
		for range 3 { // once per writeId
			c.call("process/write", fmt.Sprintf(`{"processId":"pipe","chunk":%q,"writeId":"2"}`, b64))
		}
		if got := string(w.input["pipe"]); got != "inin" || string(w.input["tty"]) != "in" {
			t.Errorf("the processes received %q and %q", got, w.input["tty"])
		}
		for _, p := range w.byName {
			if p.proc.Name != "over" {
				close(p.killed)
			}
		}
	})
}

func TestSignal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		for _, name := range []string{"p", "unknown"} {
			if got := c.call("process/signal", `{"processId":"`+name+`","signal":"interrupt"}`); got != "{}" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if fmt.Sprint(w.signals) != "[p 2]" {
			t.Errorf("sent %v", w.signals)
		}
		close(w.byName["p"].killed)
	})
}

// Requests run concurrently: a long poll delays no request about another process or a file.
func TestLongPollDelaysNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		begin := time.Now()
		c.send(`{"id":"poll","method":"process/read","params":{"processId":"p","waitMs":5000}}`)
		if got := c.call("environment/status", "null"); got != `{"status":"ready"}` {
			t.Errorf("got %s", got)
		}
		if got := c.call("process/terminate", `{"processId":"q"}`); got != `{"running":false}` || time.Since(begin) > time.Second {
			t.Errorf("got %s after %v", got, time.Since(begin))
		}
		if m := c.answer(); string(m.ID) != `"poll"` || time.Since(begin) < 5*time.Second {
			t.Errorf("got %s after %v", m.raw, time.Since(begin))
		}
		close(w.byName["p"].killed)
	})
}

// Answers about one process leave in the order of the requests, whatever runs first.
func TestAnswersAboutOneProcessStayInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(echo)
		c := ready(t, w, session.Config{})
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", `,"pipeStdin":true`))
		c.send(`{"id":2,"method":"process/read","params":{"processId":"p","afterSeq":1,"waitMs":60000}}`)
		for id := 3; id < 40; id++ {
			c.send(`{"id":%d,"method":"process/write","params":{"processId":"p","chunk":"%s","writeId":"%d"}}`, id, base64.StdEncoding.EncodeToString([]byte(fmt.Sprintln(id))), id)
		}
		c.send(`{"id":40,"method":"process/terminate","params":{"processId":"p"}}`)
		c.send(`{"id":41,"method":"process/read","params":{"processId":"p","waitMs":60000}}`)
		for id := 1; id <= 41; id++ {
			if m := c.answer(); string(m.ID) != fmt.Sprint(id) || m.Error != nil {
				t.Fatalf("got %s, want the answer to %d", m.raw, id)
			}
		}
		want := ""
		for id := 3; id < 40; id++ {
			want += fmt.Sprintln(id)
		}
		if got := string(w.input["p"]); got != want {
			t.Errorf("the process received %q", got)
		}
	})
}

// A process that does not read its input blocks neither its output nor its termination.
func TestBlockedWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		w.block = make(chan struct{})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", `,"pipeStdin":true`))
		begin := time.Now()
		c.send(`{"id":1,"method":"process/write","params":{"processId":"p","chunk":"YQ==","writeId":"1"}}`)
		if got := c.call("process/read", `{"processId":"p"}`); !strings.Contains(got, `"nextSeq":1`) || time.Since(begin) > 2*time.Second {
			t.Errorf("read: %s after %v", got, time.Since(begin))
		}
		c.send(`{"id":2,"method":"process/terminate","params":{"processId":"p"}}`)
		got := c.answer().raw + c.answer().raw
		if !strings.Contains(got, `{"id":2,"result":{"running":true}}`) || !strings.Contains(got, `{"id":1,"result":{"status":"accepted","accepted":true}}`) {
			t.Errorf("got %s", got)
		}
	})
}

// The requests in flight are bounded, and those that only wait make room.
func TestManyRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{Requests: 16})
		c.call("process/start", start("p", ""))
		begin := time.Now()
		const n = 20000
		go func() {
			for id := range n {
				c.send(`{"id":%d,"method":"process/read","params":{"processId":"p","waitMs":60000}}`, id)
			}
			c.send(`{"id":"last","method":"environment/status"}`)
		}()
		answers := 0
		for {
			m := c.answer()
			if string(m.ID) == `"last"` {
				break
			}
			answers++
		}
		if answers < n-16 || time.Since(begin) > time.Minute {
			t.Errorf("%d answers after %v", answers, time.Since(begin))
		}
		close(w.byName["p"].killed)
	})
}

// What another connection took, or an operator ended, ends this connection.
func TestLostAttachmentClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		c.call("environment/status", "null")
		close(w.lost)
		if m := c.next(); m.raw != "" {
			t.Errorf("got %s", m.raw)
		}
		c.close()
		if w.detached != 1 {
			t.Errorf("detached %d times", w.detached)
		}
	})
}

// A client that reads nothing makes the connection read no more of the record than it holds.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const chunks = 300
		w := newWorld(func(_ *world, p *fakeProcess) {
			for range chunks {
				p.print(strings.Repeat("x", 64<<10))
			}
			p.exit(0)
		})
		c := dial(t, w, session.Config{})
		c.pipe.out = make(chan []byte) // nothing is buffered
		c.send(`{"id":0,"method":"initialize","params":{"clientName":"test"}}`)
		c.next()
		c.send(`{"method":"initialized"}`)
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
		c.next()
		advance(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		reads := w.reads
		w.mu.Unlock()
		if reads > 10 {
			t.Errorf("%d batches were read for a client that reads nothing", reads)
		}
		total, seq := 0, uint64(0)
		for {
			m := c.next()
			if seq++; m.Params.Seq != seq {
				t.Fatalf("got %s, want seq %d", m.raw[:min(len(m.raw), 200)], seq)
			}
			if total += len(m.Params.Chunk); m.Method == "process/closed" {
				break
			}
		}
		if total != chunks*64<<10 {
			t.Errorf("%d bytes", total)
		}
	})
}

// A fault in one request ends the connection and nothing else.
func TestPanicEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
		c.answer()
		w.mu.Lock()
		w.byID = nil // the next read panics
		w.mu.Unlock()
		c.send(`{"id":2,"method":"process/read","params":{"processId":"p"}}`)
		if m := c.answer(); m.raw != "" {
			t.Errorf("got %s", m.raw)
		}
		w.byName["p"].w.byID = map[process.ID]*fakeProcess{w.byName["p"].proc.ID: w.byName["p"]}
		close(w.byName["p"].killed)
	})
}
