package events

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
)

// note is a document for tests: a text that a tenant may delete.
type note struct {
	subject string
	text    string // "-": deleted
	rev     uint64
	changed time.Time
}

var noteDocs = &document[string, note]{
	name: "note", stream: streams.Volumes,
	subject: func(n *note) string { return n.subject },
	key:     func(n *note) string { return n.subject },
	compare: func(a, b note) int { return strings.Compare(a.text, b.text) },
	rev:     func(n *note) uint64 { return n.rev },
	encode:  func(n *note) proto.Message { return wrapperspb.String(n.text) },
	decode: func(m store.Message) (note, error) {
		var b wrapperspb.StringValue
		err := proto.Unmarshal(m.Data, &b)
		return note{m.Subject, b.Value, m.Seq, m.Time}, err
	},
	over: func(n *note) (time.Time, bool) { return n.changed, n.text == "-" },
	keep: time.Hour,
	find: func(subject string) string { return subject },
}

// openNotes returns a table of notes that follows the log.
func openNotes(t *testing.T) (*Log, *table[string, note]) {
	t.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	l, err := Open(t.Context(), Config{InProcess: srv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.conn.Close)
	p := newProgress(l)
	notes := newTable(p, noteDocs)
	p.folds = []fold{notes.fold()}
	feed, err := l.conn.Follow(streams.Volumes, ">", 0)
	if err != nil {
		t.Fatal(err)
	}
	go p.run(t.Context(), feed, p.folds[0])
	return l, notes
}

func TestADocumentIsReplacedUnderCompareAndAppend(t *testing.T) {
	l, notes := openNotes(t)
	n := &note{subject: "vol.t.a", text: "one"}
	if err := noteDocs.create(t.Context(), l.conn, n); err != nil {
		t.Fatal(err)
	}
	if err := noteDocs.create(t.Context(), l.conn, &note{subject: "vol.t.a", text: "other"}); !kind.Is(err, kind.Conflict) {
		t.Errorf("create again: %v, want a conflict", err)
	}
	if _, err := noteDocs.put(t.Context(), l.conn, &note{subject: "vol.t.a", text: "other"}); !kind.Is(err, kind.Conflict) {
		t.Errorf("put without the rev: %v, want a conflict", err)
	}
	got, err := notes.await(t.Context(), "vol.t.a", func(n *note) bool { return n.text == "one" })
	if err != nil || got.rev == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	tries := 0
	got, err = notes.change(t.Context(), "vol.t.a", func(n *note) bool {
		if tries++; tries == 1 { // another writer is faster
			if _, err := noteDocs.put(t.Context(), l.conn, &note{subject: n.subject, text: "two", rev: n.rev}); err != nil {
				t.Error(err)
			}
		}
		n.text += "!"
		return true
	})
	if err != nil || got.text != "two!" || tries != 2 {
		t.Errorf("change: %+v after %d attempts, %v", got, tries, err)
	}
	stored, ok, err := noteDocs.read(t.Context(), l.conn, "vol.t.a")
	if err != nil || !ok || stored.text != "two!" || stored.rev != got.rev {
		t.Errorf("read: %+v %v, %v", stored, ok, err)
	}
	if _, err := notes.change(t.Context(), "vol.t.b", func(*note) bool { return true }); !kind.Is(err, kind.NotFound) {
		t.Errorf("change of a document that does not exist: %v", err)
	}
	if n, err := noteDocs.put(t.Context(), l.conn, &note{subject: "vol.t.a", text: "-", rev: got.rev}); err != nil {
		t.Fatal(n, err)
	}
	if _, err := notes.await(t.Context(), "vol.t.a", func(n *note) bool { return n.text == "-" }); err != nil {
		t.Fatal(err)
	}
	if err := noteDocs.create(t.Context(), l.conn, &note{subject: "vol.t.a", text: "three"}); err != nil {
		t.Errorf("create after deletion: %v", err)
	}
}

func TestDocumentsExpireUnlessTheyAreInUse(t *testing.T) {
	now := time.Unix(1e9, 0)
	notes := newTable(newProgress(nil), noteDocs)
	for i, n := range []note{
		{text: "kept", changed: now.Add(-2 * time.Hour)},
		{text: "-", changed: now.Add(-2 * time.Hour)}, // expires
		{text: "-", changed: now.Add(-2 * time.Hour)}, // in use
		{text: "-", changed: now.Add(-time.Minute)},
	} {
		n.subject = fmt.Sprint(i)
		notes.set(n)
	}
	notes.inUse = func(since time.Time) map[string]bool {
		if want := now.Add(-time.Hour); !since.Equal(want) {
			t.Errorf("in use since %v, want %v", since, want)
		}
		return map[string]bool{"2": true}
	}
	notes.expire(now)
	var left []string
	for _, n := range notes.list(func(*note) bool { return true }) {
		left = append(left, n.subject)
	}
	if len(left) != 3 || notes.ended != 3 {
		t.Errorf("left %v, ended %d; want 3 each", left, notes.ended)
	}
	if _, ok := notes.get("1"); ok {
		t.Error("note 1 did not expire")
	}
}

// A view does not wait for a document longer than its caller.
func TestAwaitEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	notes := newTable(newProgress(nil), noteDocs)
	if _, err := notes.await(ctx, "a", func(*note) bool { return false }); err == nil {
		t.Error("await succeeded")
	}
}
