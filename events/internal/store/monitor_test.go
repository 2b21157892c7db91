package store

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
)

func TestAStreamThatCannotBeWrittenIsBlocked(t *testing.T) {
	begin := time.Unix(1000, 0)
	later := begin.Add(blockedAfter)
	alone, led := leader{answered: true}, leader{name: "n1", answered: true}
	broken := func(server string) func(*Monitor) {
		return func(m *Monitor) {
			m.reports = map[string]report{server: {later, []fleet.StoreProblem{{Stream: "HOSTS", Error: "write error"}}}}
		}
	}
	tests := []struct {
		name    string
		know    func(*Monitor)
		leader  leader
		blocked string
		damaged int
	}{
		{"a healthy stream", func(*Monitor) {}, led, "", 0},
		{"no leader for long", func(m *Monitor) { m.silent = map[string]time.Time{"HOSTS": begin} }, leader{}, "no leader answers: too few NATS servers have the stream", 0},
		{"no leader during an election", func(m *Monitor) { m.silent = map[string]time.Time{"HOSTS": begin.Add(time.Second)} }, leader{}, "", 0},
		{"no leader, and a damaged copy", func(m *Monitor) {
			broken("n2")(m)
			m.silent = map[string]time.Time{"HOSTS": begin}
		}, leader{}, "no leader answers: too few NATS servers have the stream (n2: write error)", 1},
		{"the only server is damaged", broken("n1"), alone, "n1: write error", 0},
		{"the leader is damaged", broken("n1"), led, "n1: write error", 0},
		{"another copy is damaged", broken("n2"), led, "", 1},
		{"appends fail for long", func(m *Monitor) {
			m.appended("host.h", errors.New("disk"), begin)
			m.appended("host.h", errors.New("disk full"), later)
		}, led, "appends fail: disk full", 0},
		{"one append failed", func(m *Monitor) { m.appended("host.h", errors.New("disk"), later) }, led, "", 0},
		{"an append succeeded between", func(m *Monitor) {
			m.appended("host.h", errors.New("disk"), begin)
			m.appended("host.h", nil, begin)
			m.appended("host.h", errors.New("disk"), later)
		}, led, "", 0},
		{"appends to another stream fail", func(m *Monitor) {
			m.appended("sbx.t.s", errors.New("disk"), begin)
			m.appended("sbx.t.s", errors.New("disk"), later)
		}, led, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := &Monitor{session: newSession(slog.New(slog.DiscardHandler))}
			tt.know(m)
			if m.silent != nil {
				m.logged = map[string]time.Time{}
			}
			m.judge(m.log, []string{"HOSTS"}, []leader{tt.leader}, later)
			got := m.Streams()
			if len(got) != 1 || got[0].Blocked != tt.blocked || len(got[0].Damaged) != tt.damaged {
				t.Errorf("%+v; want blocked %q, %d damaged", got, tt.blocked, tt.damaged)
			}
			if err := m.blocked(); (err != nil) != (tt.blocked != "") {
				t.Errorf("blocked: %v", err)
			}
		})
	}
}

func TestAnObjectStoreBlocksNoStream(t *testing.T) {
	m := &Monitor{session: newSession(slog.New(slog.DiscardHandler))}
	m.reports = map[string]report{"n1": {time.Unix(1000, 0), []fleet.StoreProblem{{Stream: "OBJ_templates", Error: "write error"}}}}
	m.judge(m.log, []string{"HOSTS", "OBJ_templates"}, []leader{{answered: true}, {answered: true}}, time.Unix(1000, 0))
	if got := m.Streams(); len(got) != 2 || got[0].Blocked != "" || got[1].Blocked != "n1: write error" {
		t.Errorf("%+v", got)
	}
	if err := m.blocked(); err != nil {
		t.Error(err)
	}
}
