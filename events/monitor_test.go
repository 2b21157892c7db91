package events

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/internal/streams"
)

func TestAStreamThatCannotBeWrittenIsBlocked(t *testing.T) {
	begin := time.Unix(1000, 0)
	later := begin.Add(blockedAfter)
	alone, led := leader{answered: true}, leader{name: "n1", answered: true}
	broken := func(server string) func(*monitor) {
		return func(m *monitor) {
			m.reports = map[string]report{server: {later, []fleet.StoreProblem{{Stream: "HOSTS", Error: "write error"}}}}
		}
	}
	tests := []struct {
		name    string
		know    func(*monitor)
		leader  leader
		blocked string
		damaged int
	}{
		{"a healthy stream", func(*monitor) {}, led, "", 0},
		{"no leader for long", func(m *monitor) { m.silent = map[string]time.Time{"HOSTS": begin} }, leader{}, "no leader answers: too few NATS servers have the stream", 0},
		{"no leader during an election", func(m *monitor) { m.silent = map[string]time.Time{"HOSTS": begin.Add(time.Second)} }, leader{}, "", 0},
		{"no leader, and a damaged copy", func(m *monitor) {
			broken("n2")(m)
			m.silent = map[string]time.Time{"HOSTS": begin}
		}, leader{}, "no leader answers: too few NATS servers have the stream (n2: write error)", 1},
		{"the only server is damaged", broken("n1"), alone, "n1: write error", 0},
		{"the leader is damaged", broken("n1"), led, "n1: write error", 0},
		{"another copy is damaged", broken("n2"), led, "", 1},
		{"appends fail for long", func(m *monitor) {
			m.appended("host.h", errors.New("disk"), begin)
			m.appended("host.h", errors.New("disk full"), later)
		}, led, "appends fail: disk full", 0},
		{"one append failed", func(m *monitor) { m.appended("host.h", errors.New("disk"), later) }, led, "", 0},
		{"an append succeeded between", func(m *monitor) {
			m.appended("host.h", errors.New("disk"), begin)
			m.appended("host.h", nil, begin)
			m.appended("host.h", errors.New("disk"), later)
		}, led, "", 0},
		{"appends to another stream fail", func(m *monitor) {
			m.appended("sbx.t.s", errors.New("disk"), begin)
			m.appended("sbx.t.s", errors.New("disk"), later)
		}, led, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := &conn{log: slog.New(slog.DiscardHandler)}
			m := &l.monitor
			tt.know(m)
			if m.silent != nil {
				m.logged = map[string]time.Time{}
			}
			m.judge(l.log, []string{"HOSTS"}, []leader{tt.leader}, later)
			got := l.Streams()
			if len(got) != 1 || got[0].Blocked != tt.blocked || len(got[0].Damaged) != tt.damaged {
				t.Errorf("%+v; want blocked %q, %d damaged", got, tt.blocked, tt.damaged)
			}
			if err := l.blocked(); (err != nil) != (tt.blocked != "") {
				t.Errorf("blocked: %v", err)
			}
		})
	}
}

func TestStreamOfASubject(t *testing.T) {
	for subject, want := range map[string]string{
		"out.0a.h.s.p": "OUT_0a", "sbx.t.s": "SBX", "proc.h.s.p": "PROC", "cmd.h": "CMD", "host.h": "HOSTS", "place.s.p": "PLACE",
		"tunnel.h": "TUNNEL", "io.reply.c.1": "IO", "other.x": "",
	} {
		if got := streams.Of(subject); got != want {
			t.Errorf("streams.Of(%q) = %q, want %q", subject, got, want)
		}
	}
}
