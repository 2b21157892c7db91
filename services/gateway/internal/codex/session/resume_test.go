package session_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// follower is a process as release 0.169 follows it: events are published in order of seq, at
// most 256 wait for a missing one, and a recovery must leave no hole.
type follower struct {
	last    uint64
	pending map[uint64]string
	text    strings.Builder
	exits   int
	closed  bool
}

const maxPending = 256

func (f *follower) insert(seq uint64, event string) error {
	if seq <= f.last {
		return nil
	}
	if f.pending == nil {
		f.pending = map[uint64]string{}
	}
	f.pending[seq] = event
	for {
		e, ok := f.pending[f.last+1]
		if !ok {
			break
		}
		f.last++
		delete(f.pending, f.last)
		switch e {
		case "exited":
			f.exits++
		case "closed":
			f.closed = true
		default:
			f.text.WriteString(strings.TrimPrefix(e, "output "))
		}
	}
	if len(f.pending) > maxPending {
		return fmt.Errorf("process event reorder buffer exceeds %d entries", maxPending)
	}
	return nil
}

// notify takes a notification.
func (f *follower) notify(m *msg) error {
	event := strings.TrimPrefix(m.Method, "process/")
	if event == "output" {
		event += " " + string(m.Params.Chunk)
	}
	return f.insert(m.Params.Seq, event)
}

// recover takes the answer of the read after a resume.
func (f *follower) recover(r *readResult) error {
	target := r.NextSeq - 1
	if r.Failure != "" {
		return fmt.Errorf("process failed while recovering: %s", r.Failure)
	}
	if target <= f.last {
		return nil
	}
	have := map[uint64]string{}
	for _, c := range r.Chunks {
		if c.Seq > target {
			return fmt.Errorf("recovered output %d exceeds %d", c.Seq, target)
		}
		have[c.Seq] = "output " + string(c.Chunk)
	}
	if r.Closed {
		if have[target] != "" {
			return fmt.Errorf("close sequence %d conflicts with recovered output", target)
		}
		have[target] = "closed"
	}
	var missing []uint64
	for seq := f.last + 1; seq <= target; seq++ {
		if _, ok := f.pending[seq]; !ok && have[seq] == "" {
			missing = append(missing, seq)
		}
	}
	switch {
	case len(missing) == 1 && r.Exited && f.exits == 0:
		have[missing[0]] = "exited"
	case len(missing) > 0:
		return fmt.Errorf("process events are no longer retained: %v of %d", missing, target)
	}
	for _, seq := range slices.Sorted(maps.Keys(have)) {
		if err := f.insert(seq, have[seq]); err != nil {
			return err
		}
	}
	return nil
}

// attach connects and resumes, like the released client: it reads each live process once.
func attach(t *testing.T, w *world, followers map[string]*follower) (*client, error) {
	t.Helper()
	c := dial(t, w, session.Config{})
	c.send(`{"id":0,"method":"initialize","params":{"clientName":"test","resumeSessionId":"s1"}}`)
	if m := c.next(); m.Result == nil {
		return c, fmt.Errorf("resume: %s", m.raw)
	}
	c.send(`{"method":"initialized"}`)
	for name, f := range followers {
		if f.closed {
			continue
		}
		c.send(`{"id":"read","method":"process/read","params":{"processId":%q,"afterSeq":%d,"maxBytes":null,"waitMs":0}}`, name, f.last)
		for {
			m := c.next()
			if m.Method != "" {
				if at := followers[m.Params.ProcessID]; at != nil {
					if err := at.notify(&m); err != nil {
						return c, err
					}
				}
				continue
			}
			var r readResult
			if m.Result == nil || json.Unmarshal(m.Result, &r) != nil {
				return c, fmt.Errorf("read: %s", m.raw)
			}
			if err := f.recover(&r); err != nil {
				return c, err
			}
			break
		}
	}
	return c, nil
}

// A client that is cut off at random frames, again and again, sees every byte once and one exit
// of each process, whatever happened meanwhile.
func TestCutsAtRandomFrames(t *testing.T) {
	cuts := 0
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // a test
			want := map[string]*strings.Builder{"a": {}, "bb": {}, "ccc": {}}
			w := newWorld(func(_ *world, p *fakeProcess) {
				r := rand.New(rand.NewPCG(seed, uint64(len(p.proc.Name)))) //nolint:gosec // a test
				for range 300 {
					switch r.IntN(10) {
					case 0:
						p.append(process.StdinAcked{})
					case 1:
						advance(time.Duration(r.IntN(50)) * time.Millisecond)
					default:
						s := fmt.Sprintf("%s %d\n", p.proc.Name, r.IntN(1000))
						want[p.proc.Name].WriteString(s)
						p.print(s)
					}
				}
				x := process.Exit{Cause: process.CauseExited, Code: new(int32)}
				p.append(process.Exited{Exit: x})
				for range r.IntN(4) { // children may print later
					p.append(process.StdinAcked{})
					want[p.proc.Name].WriteString("child\n")
					p.print("child\n")
				}
				p.append(process.Finished{Exit: x})
			})
			followers := map[string]*follower{}
			c := ready(t, w, session.Config{})
			for _, name := range []string{"a", "bb", "ccc"} {
				followers[name] = &follower{}
				c.send(`{"id":%q,"method":"process/start","params":%s}`, name, start(name, ""))
			}
			for answers := 0; answers < 3; {
				m := c.next()
				if m.Method == "" {
					answers++
				} else if err := followers[m.Params.ProcessID].notify(&m); err != nil {
					t.Fatal(err)
				}
			}
			for {
				open := 0
				for _, f := range followers {
					if !f.closed {
						open++
					}
				}
				if open == 0 {
					break
				}
				for range r.IntN(40) + 1 {
					select {
					case raw := <-c.pipe.out:
						m := c.parse(raw)
						if at := followers[m.Params.ProcessID]; at != nil {
							if err := at.notify(&m); err != nil {
								t.Fatalf("seed %d: %v", seed, err)
							}
						}
					case <-time.After(20 * time.Millisecond):
					}
				}
				c.close()
				cuts++
				if r.IntN(3) == 0 {
					advance(time.Duration(r.IntN(200)) * time.Millisecond)
				}
				var err error
				if c, err = attach(t, w, followers); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			for name, f := range followers {
				if f.text.String() != want[name].String() || f.exits != 1 {
					t.Fatalf("seed %d: %s: %d exits, %d bytes, want %d", seed, name, f.exits, f.text.Len(), want[name].Len())
				}
			}
		})
	}
	if cuts < 500 {
		t.Errorf("only %d cuts", cuts)
	}
}

// A backlog of any size arrives: a page, then pushes behind it.
func TestLargeBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const chunks = 60
		w := newWorld(func(_ *world, p *fakeProcess) {
			p.print("first")
			advance(time.Second)
			for range chunks {
				p.print(strings.Repeat("x", 256<<10))
			}
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
		f := &follower{}
		c.next()
		m := c.next()
		if err := f.notify(&m); err != nil {
			t.Fatal(err)
		}
		c.close()
		advance(time.Minute)
		c, err := attach(t, w, map[string]*follower{"p": f})
		for err == nil && !f.closed {
			m := c.next()
			err = f.notify(&m)
		}
		if err != nil || f.text.Len() != chunks*256<<10+5 || f.exits != 1 {
			t.Errorf("%d bytes, %d exits, %v", f.text.Len(), f.exits, err)
		}
	})
}

// The released client applies the answer of the first read while it receives notifications, and
// kills a process for which 1 MiB of them wait: the answer is small and has a head start.
func TestNotificationsWaitForTheRecovery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			for range 100 {
				p.print(strings.Repeat("x", 64<<10))
			}
			p.exit(0)
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		c.close()
		synctest.Wait()
		c, err := attach(t, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := c.read(`{"processId":"p","afterSeq":0,"maxBytes":null,"waitMs":0}`)
		if len(r.text()) == 0 || len(r.text()) > 256<<10 || r.Exited || r.Closed {
			t.Errorf("the first answer: %d bytes, %+v", len(r.text()), r.NextSeq)
		}
		begin := time.Now()
		if m := c.next(); m.Params.Seq != r.NextSeq || time.Since(begin) < 20*time.Millisecond {
			t.Errorf("got seq %d after %v, want %d", m.Params.Seq, time.Since(begin), r.NextSeq)
		}
		if r := c.read(`{"processId":"p","afterSeq":0}`); len(r.text()) < 4<<20 {
			t.Errorf("a later read: %d bytes", len(r.text()))
		}
	})
}

// A resumed client that reads nothing receives what is new.
func TestResumeWithoutARead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(func(_ *world, p *fakeProcess) {
			p.print("old")
			advance(10 * time.Second)
			p.print("new")
			<-p.killed
			p.die()
		})
		c := ready(t, w, session.Config{})
		c.call("process/start", start("p", ""))
		c.next()
		c.close()
		c, err := attach(t, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m := c.next(); m.Params.Seq != 2 || string(m.Params.Chunk) != "new" {
			t.Errorf("got %s", m.raw)
		}
		close(w.byName["p"].killed)
	})
}

// A start whose answer was cut off is known after the resume, and can be terminated.
func TestCutBetweenStartAndAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		c := ready(t, w, session.Config{})
		c.send(`{"id":1,"method":"process/start","params":%s}`, start("p", ""))
		c.close()
		synctest.Wait()
		c, err := attach(t, w, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.call("process/start", start("p", "")); got != "-32600 process p already exists" {
			t.Errorf("again: %s", got)
		}
		if got := c.call("process/terminate", `{"processId":"p"}`); got != `{"running":true}` {
			t.Errorf("terminate: %s", got)
		}
	})
}
