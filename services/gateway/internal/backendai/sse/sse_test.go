package sse

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
)

// stored is a log in memory. The events of a message have one stream sequence.
type stored struct{ all []catalog.SandboxEvent }

// add stores a message with the events that a session's sandbox has when it is placed and runs.
func (l *stored) add(tenant string) {
	rev := l.SandboxesRev() + 1
	st := sandbox.State{ID: "i0123456789abcdefghij", Tenant: tenant, Host: "h", Started: time.Unix(1, 0), Request: sandbox.Requested{Metadata: (&session.Wanted{Name: "name"}).Metadata(nil)}}
	for i, b := range []sandbox.Body{sandbox.Placed{}, sandbox.DeadlineSet{}, sandbox.Running{}} {
		l.all = append(l.all, catalog.SandboxEvent{Position: webhook.At(rev, i), Event: sandbox.Event{Body: b}, State: st})
	}
}

func (l *stored) SandboxesRev() uint64 {
	if len(l.all) == 0 {
		return 0
	}
	return l.all[len(l.all)-1].Position.Rev()
}

func (*stored) FollowSandboxes(context.Context, uint64, func() func(string) bool, func([]catalog.SandboxEvent, uint64)) error {
	return nil
}

// SandboxEvents returns the events of at most one message.
func (l *stored) SandboxEvents(_ context.Context, tenant string, after webhook.Position, until uint64) (out []catalog.SandboxEvent, read webhook.Position, _ error) {
	for _, e := range l.all {
		if rev := e.Position.Rev(); e.State.Tenant == tenant && e.Position > after && rev <= until && (len(out) == 0 || out[0].Position.Rev() == rev) {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, webhook.Through(until), nil
	}
	return out, webhook.Through(out[0].Position.Rev()), nil
}

// deliver passes the messages after a stream sequence on to a hub, with a call in the middle.
func (l *stored) deliver(h *Hub, after uint64, meanwhile func()) {
	wanted := h.begin()
	var some []catalog.SandboxEvent
	for _, e := range l.all {
		if e.Position.Rev() > after && wanted(e.State.Tenant) {
			some = append(some, e)
		}
	}
	meanwhile()
	h.add(some, l.SandboxesRev())
}

func every(dst []Event, e *Event) []Event { return append(dst, *e) }

// got reads what a source has by now.
func got(t *testing.T, s *Source) []string {
	t.Helper()
	var out []string
	for {
		batch, err := s.Next(t.Context(), time.Nanosecond)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return out
		}
		for _, e := range batch {
			out = append(out, e.Body.(carried).Cursor.String())
		}
	}
}

// A listener gets each event after its cursor once, in order, whenever it comes, and however many
// events are stored meanwhile.
func TestListenersGetEachEventOnce(t *testing.T) {
	l := &stored{}
	h := NewHub(l)
	type client struct {
		*Source
		after Cursor
		got   []string
	}
	var clients []*client
	random := rand.New(rand.NewPCG(1, 2))
	join := func() {
		after := h.Now()
		if n := len(l.all); n > 0 && random.IntN(2) == 0 {
			after = Cursor{l.all[random.IntN(n)].Position, random.IntN(7)}
		}
		clients = append(clients, &client{Source: h.Listen("a", after, nil, every), after: after})
	}
	for range 300 {
		before := l.SandboxesRev()
		for range random.IntN(8) {
			l.add([]string{"a", "b"}[random.IntN(2)])
		}
		l.deliver(h, before, func() {
			if random.IntN(4) == 0 {
				join()
			}
		})
		if len(clients) == 0 {
			join()
		}
		c := clients[random.IntN(len(clients))]
		c.got = append(c.got, got(t, c.Source)...)
		if random.IntN(8) == 0 { // the topic ends with its last listener
			for _, c := range clients[1:] {
				c.got = append(c.got, got(t, c.Source)...)
				check(t, l, c.after, c.got)
				c.Close()
			}
			clients = clients[:1]
		}
	}
	for _, c := range clients {
		c.got = append(c.got, got(t, c.Source)...)
		check(t, l, c.after, c.got)
		c.Close()
	}
	if len(h.topics) != 0 || len(h.late) != 0 {
		t.Errorf("%d topics without listeners", len(h.topics))
	}
}

// check compares what a client of tenant a got with the log.
func check(t *testing.T, l *stored, after Cursor, got []string) {
	t.Helper()
	var want []string
	for i := range l.all {
		for _, e := range Of(&l.all[i]) {
			if l.all[i].State.Tenant == "a" && e.Compare(after) > 0 {
				want = append(want, e.Cursor.String())
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("after %s: %d events, want %d\n%q\n%q", after, len(got), len(want), got, want)
	}
}

// B-035: the names of a session's events, for each way in which it may end.
func TestNames(t *testing.T) {
	started := time.Unix(1, 0)
	for _, tt := range []struct {
		name  string
		state sandbox.State
		body  sandbox.Body
		want  string
	}{
		{"requested", sandbox.State{}, sandbox.Requested{}, "session_enqueued"},
		{"queued", sandbox.State{}, sandbox.Queued{}, ""},
		{"stopped before it was placed", sandbox.State{}, sandbox.Stopping{Cause: sandbox.CauseUser}, "kernel_cancelled session_cancelled user-requested"},
		{"refused", sandbox.State{}, sandbox.Refused{Reason: "full"}, "kernel_cancelled session_cancelled full"},
		{"failed before it ran", sandbox.State{Host: "h"}, sandbox.Failed{Message: "disk"}, "kernel_cancelled session_cancelled disk"},
		{"idle", sandbox.State{Host: "h", Started: started}, sandbox.Stopping{Cause: sandbox.CauseTimeout}, "session_terminating kernel_terminating idle-timeout"},
		{"lost", sandbox.State{Host: "h", Started: started}, sandbox.Lost{Reason: "lost"}, "kernel_terminated session_terminated lost"},
		{"a command that succeeds", sandbox.State{Host: "h", Started: started}, sandbox.Stopping{Cause: session.Exited(0)}, "session_success session_terminating kernel_terminating task-finished 0"},
		{"a command that fails", sandbox.State{Host: "h", Started: started}, sandbox.Stopping{Cause: session.Exited(3)}, "session_failure session_terminating kernel_terminating task-failed 3"},
	} {
		tt.state.ID, tt.state.Request.Metadata = "i0123456789abcdefghij", (&session.Wanted{Name: "name"}).Metadata(nil)
		var words []string
		for _, e := range Of(&catalog.SandboxEvent{Position: 1, Event: sandbox.Event{Body: tt.body}, State: tt.state}) {
			words = append(words, e.Name)
		}
		all := strings.Join(words, " ")
		if !strings.HasPrefix(tt.want, all) || all == "" && tt.want != "" {
			t.Errorf("%s: %q, want %q", tt.name, all, tt.want)
		}
		_, cause := namesOf(&catalog.SandboxEvent{Event: sandbox.Event{Body: tt.body}, State: tt.state})
		rest := reason(cause)
		if code, ok := session.ExitCode(cause); ok {
			rest += fmt.Sprint(" ", code)
		}
		if got := strings.TrimSpace(all + " " + rest); got != tt.want && tt.name != "requested" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if all := Of(&catalog.SandboxEvent{Event: sandbox.Event{Body: sandbox.Running{}}}); len(all) != 0 {
		t.Errorf("a sandbox without a name has %d events", len(all))
	}
}

// The stream of a task begins with its state and ends with the event after which its client does
// not reconnect.
func TestTask(t *testing.T) {
	box := sandbox.State{ID: "i0123456789abcdefghij", Host: "h", Started: time.Unix(1, 0), Request: sandbox.Requested{Metadata: (&session.Wanted{Name: "name"}).Metadata(nil)}}
	pick, now := Task(&box)
	words := func(all []Event) string {
		var w []string
		for _, e := range all {
			w = append(w, e.Name)
		}
		return strings.Join(w, " ")
	}
	if got := words(now); got != "bgtask_updated task_updated" {
		t.Errorf("a running task: %s", got)
	}
	for cause, want := range map[string]string{
		session.Exited(0): "bgtask_done task_done server_close", session.Exited(1): "bgtask_failed task_failed server_close",
	} {
		ended := box
		ended.Cause, ended.Phase = cause, sandbox.PhaseDestroyed
		if _, now := Task(&ended); words(now) != want {
			t.Errorf("%s: %s, want %s", cause, words(now), want)
		}
		var live []Event
		for _, e := range Of(&catalog.SandboxEvent{Position: 1, Event: sandbox.Event{Body: sandbox.Stopping{Cause: cause}}, State: box}) {
			live = pick(live, &e)
		}
		if words(live) != want {
			t.Errorf("%s, live: %s, want %s", cause, words(live), want)
		}
	}
	ended := box
	ended.Cause, ended.Phase = sandbox.CauseUser, sandbox.PhaseDestroyed
	if _, now := Task(&ended); words(now) != "bgtask_cancelled task_cancelled server_close" {
		t.Errorf("cancelled: %s", words(now))
	}
	enc := NewEncoder()
	var out []byte
	var err error
	for _, e := range now {
		if out, err = enc.AppendEvent(out, process.Event{Body: carried{Event: e}}); err != nil {
			t.Error(err)
		}
	}
	if got := string(out); !strings.HasPrefix(got, "event: bgtask_updated\r\ndata: {\"task_id\":\"") || strings.Contains(got, "\nid: ") {
		t.Errorf("%q", got)
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("1.0")
	f.Add("18446744073709551615.255")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ParseCursor(s); err == nil && c.String() != s {
			t.Errorf("%q: %q", s, c)
		}
	})
}
