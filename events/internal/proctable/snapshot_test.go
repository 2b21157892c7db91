package proctable

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/finished"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// parts are stored snapshots.
type parts map[string][]byte

func (p parts) Get(_ context.Context, name string) ([]byte, error) {
	if data, ok := p[name]; ok {
		return data, nil
	}
	return nil, kind.New(kind.NotFound, "read", name, "")
}

func (p parts) Put(_ context.Context, name string, data []byte) error {
	p[name] = data
	return nil
}

func (p parts) List(context.Context) (map[string]time.Time, error) {
	at := make(map[string]time.Time)
	for name := range p {
		at[name] = time.Time{}
	}
	return at, nil
}

func (p parts) Remove(_ context.Context, name string) error {
	delete(p, name)
	return nil
}

// history is the catalog's stream, which keeps the last message of each subject.
type history struct {
	seq  uint64
	last map[string]store.Message
}

func (h *history) LeaderGet(_ context.Context, _ string, req store.GetRequest) (store.Message, bool, error) {
	for _, m := range h.last {
		if m.Seq == req.Seq {
			return m, true, nil
		}
	}
	return store.Message{}, false, nil
}

func (h *history) append(subject string, data []byte) store.Message {
	h.seq++
	m := store.Message{Subject: subject, Seq: h.seq, Data: data, Time: time.Unix(0, int64(h.seq))}
	h.last[subject] = m
	return m
}

// fold returns a table of all messages after that of the snapshot that it was restored from.
func (h *history) fold(t *testing.T, from Snapshots) (table *Table, restored uint64) {
	t.Helper()
	table = small(from, h)
	restored, err := table.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.SortedFunc(maps.Values(h.last), func(a, b store.Message) int { return int(a.Seq) - int(b.Seq) }) {
		if m.Seq > restored {
			if err := table.Apply(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	return table, restored
}

func small(from Snapshots, stream leader) *Table {
	t := New(nil, fold.NewProgress(nil), time.Hour, from)
	t.finished, t.leader = finished.NewSet(8), stream
	return t
}

// content is all that a table answers, in lines.
func content(t *Table) []string {
	counts := t.Counts()
	maps.DeleteFunc(counts, func(_ process.Outcome, n uint64) bool { return n == 0 })
	out := []string{fmt.Sprint(counts, t.totals.upTo, t.totals.rev, t.totals.dropped, t.totals.settled)}
	for _, s := range t.List("", every) {
		_, rev, _ := t.Get(s.ID)
		named, ok := t.ByPID(s.ID.Sandbox(), s.PID)
		text := fmt.Sprintln(s.ID, rev, s.Tenant, s.Host, s.Started.UnixNano(), s.Ended.UnixNano(), s.Killed, s.Last, s.PID, s.Spec.Args, s.Spec.Env, named.ID, ok)
		if s.Exit != nil {
			text += fmt.Sprintln(*s.Exit.Code, s.Exit.Cause)
		}
		out = append(out, text)
	}
	return out
}

// script stores random changes of processes, and totals with and without a drop of old entries.
type script struct {
	*history
	r      *rand.Rand
	active []process.Summary
}

func (s *script) step(t *testing.T, view *Table) store.Message {
	t.Helper()
	var sum process.Summary
	switch n := s.r.IntN(20); {
	case n == 0 && s.seq > 20:
		data, err := view.totals.encode(s.seq, view.totals.dropped)
		if s.r.IntN(3) == 0 {
			drop := max(view.totals.dropped, s.seq-min(s.seq, 60))
			data, err = view.totals.encode(s.seq, drop)
			for subject, m := range s.last {
				if m.Seq < drop && s.r.IntN(2) == 0 { // a killed server restores some
					delete(s.last, subject)
				}
			}
			s.active = slices.DeleteFunc(s.active, func(sum process.Summary) bool { return s.last[subject(sum.Host, sum.ID)].Seq < drop })
		}
		if err != nil {
			t.Fatal(err)
		}
		return s.append(totalsSubject, data)
	case n < 8 || len(s.active) == 0:
		sum = process.Summary{ID: process.NewID(sandbox.ID([]string{"a", "b"}[s.r.IntN(2)])), Tenant: fmt.Sprint(s.r.IntN(2)), Host: "h", Spec: process.Spec{Cmd: "c", Args: []string{fmt.Sprint(s.r.IntN(5))}, Env: map[string]string{"SECRET": "x"}}}
		s.active = append(s.active, sum)
	case n < 12:
		at := &s.active[s.r.IntN(len(s.active))]
		at.Started, at.PID, at.Killed = time.Unix(int64(s.seq), 0), uint32(s.r.IntN(9)), s.r.IntN(2) == 0
		sum = *at
	default:
		i := s.r.IntN(len(s.active))
		sum = s.active[i]
		s.active = slices.Delete(s.active, i, i+1)
		code := int32(s.r.IntN(2))
		sum.Ended, sum.Exit, sum.Last = time.Unix(int64(s.seq), 0), &process.Exit{Code: &code, Cause: process.CauseExited}, s.seq
	}
	data, err := codec.EncodeSummary(&sum)
	if err != nil {
		t.Fatal(err)
	}
	return s.append(subject(sum.Host, sum.ID), data)
}

// A snapshot and what follows it is the same as the whole catalog, wherever the snapshot was
// taken and whatever follows.
func TestASnapshotAndTheTailAreTheCatalog(t *testing.T) {
	cuts := 0
	for seed := range uint64(40) {
		s := &script{history: &history{last: map[string]store.Message{}}, r: rand.New(rand.NewPCG(seed, 1))}
		stored := parts{}
		view := small(stored, s)
		for range 300 {
			if err := view.Apply(s.step(t, view)); err != nil {
				t.Fatal(err)
			}
			if s.r.IntN(30) == 0 {
				if err := view.SaveSnapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if s.r.IntN(10) > 0 {
				continue
			}
			got, restored := s.fold(t, stored)
			want, _ := s.fold(t, nil)
			if a, b := content(got), content(want); !slices.Equal(a, b) {
				at := 0
				for at < min(len(a), len(b)) && a[at] == b[at] {
					at++
				}
				t.Fatalf("seed %d: from the snapshot up to %d of %d %d lines, without it %d:\n%v\n%v", seed, restored, s.seq, len(a), len(b), a[at:min(at+1, len(a))], b[at:min(at+1, len(b))])
			}
			if restored > 0 {
				cuts++
				view = got // it continues from the chunks of the snapshot
			}
		}
		for name, data := range stored {
			if strings.Contains(string(data), "SECRET") {
				t.Errorf("part %s has an environment", name)
			}
		}
	}
	if cuts < 100 {
		t.Errorf("only %d views began from a snapshot", cuts)
	}
}

// A snapshot of another stream, of another version, or with parts missing or damaged is ignored,
// and replaced by the next one.
func TestASnapshotThatDoesNotFitIsIgnored(t *testing.T) {
	s := &script{history: &history{last: map[string]store.Message{}}, r: rand.New(rand.NewPCG(7, 1))}
	stored := parts{}
	view := small(stored, s)
	for range 200 {
		if err := view.Apply(s.step(t, view)); err != nil {
			t.Fatal(err)
		}
	}
	if err := view.SaveSnapshot(t.Context()); err != nil || len(stored) < 3 {
		t.Fatal(len(stored), err)
	}
	h, ok, err := view.head(t.Context())
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	without := func(name string) parts { c := maps.Clone(stored); delete(c, name); return c }
	with := func(name string, data []byte) parts { c := maps.Clone(stored); c[name] = data; return c }
	for what, p := range map[string]parts{
		"no head": without(headName), "no chunk": without(h.Chunks[0]), "a damaged chunk": with(h.Chunks[0], []byte("x")),
		"another chunk": with(h.Chunks[0], stored[h.Chunks[1]]), "another version": with(headName, []byte(`{"Version":99}`)), "no JSON": with(headName, []byte("{")),
	} {
		table := small(p, s)
		if upTo, _ := table.Restore(t.Context()); upTo != 0 || !reflect.DeepEqual(table.List("", every), []process.Summary{}) {
			t.Errorf("%s: restored up to %d", what, upTo)
		}
		table.last = view.last
		table.last.Chunks = nil
		if err := table.SaveSnapshot(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if upTo, err := small(p, s).Restore(t.Context()); upTo != h.Anchor.Seq {
			t.Errorf("%s: after it was stored again, restored up to %d, %v", what, upTo, err)
		}
	}
	for what, change := range map[string]func(*store.Message){
		"another time": func(m *store.Message) { m.Time = m.Time.Add(1) }, "another message": func(m *store.Message) { m.Seq += 1000 },
	} {
		other := &history{last: maps.Clone(s.last)}
		m := other.last[h.Anchor.Subject]
		change(&m)
		other.last[h.Anchor.Subject] = m
		if upTo, err := small(stored, other).Restore(t.Context()); upTo != 0 || err != nil {
			t.Errorf("%s: restored up to %d, %v", what, upTo, err)
		}
	}
}

// When retention has dropped the last message of a snapshot, nothing of it is left.
func TestASnapshotIsRemovedWithItsProcesses(t *testing.T) {
	s := &script{history: &history{last: map[string]store.Message{}}, r: rand.New(rand.NewPCG(7, 1))}
	stored := parts{}
	view := small(stored, s)
	for range 200 {
		if err := view.Apply(s.step(t, view)); err != nil {
			t.Fatal(err)
		}
	}
	save := func(want bool) {
		t.Helper()
		if err := view.SaveSnapshot(t.Context()); err != nil || len(stored) > 0 != want {
			t.Errorf("%d parts are stored, want some: %v; %v", len(stored), want, err)
		}
	}
	save(true)
	save(true)
	clear(s.last)
	save(false)
}
