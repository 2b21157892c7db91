package fold

import (
	"context"
	"fmt"
	"log/slog"
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

var noteDocs = &Document[string, note]{
	Name: "note", Stream: streams.Volumes,
	Subject: func(n *note) string { return n.subject },
	Key:     func(n *note) string { return n.subject },
	Compare: func(a, b note) int { return strings.Compare(a.text, b.text) },
	Rev:     func(n *note) uint64 { return n.rev },
	Encode:  func(n *note) proto.Message { return wrapperspb.String(n.text) },
	Decode: func(m store.Message) (note, error) {
		var b wrapperspb.StringValue
		err := proto.Unmarshal(m.Data, &b)
		return note{m.Subject, b.Value, m.Seq, m.Time}, err
	},
	Over: func(n *note) (time.Time, bool) { return n.changed, n.text == "-" },
	Keep: time.Hour,
	Find: func(subject string) string { return subject },
}

// open returns a connection to a server that ends with the test.
func open(t *testing.T) *store.Conn {
	t.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	conn, err := store.Open(t.Context(), store.Config{
		InProcess: srv, Name: t.Name(), Log: slog.New(slog.DiscardHandler),
		Replicas: 1, Shards: 1, Retention: time.Hour, MaxOutput: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// openNotes returns a table of notes that follows the log.
func openNotes(t *testing.T) (*store.Conn, *Table[string, note]) {
	t.Helper()
	conn := open(t)
	p := NewProgress(conn)
	notes := NewTable(p, noteDocs)
	if err := p.Start(t.Context(), []Source{notes.Source()}); err != nil {
		t.Fatal(err)
	}
	return conn, notes
}

func TestADocumentIsReplacedUnderCompareAndAppend(t *testing.T) {
	conn, notes := openNotes(t)
	n := &note{subject: "vol.t.a", text: "one"}
	if err := noteDocs.Create(t.Context(), conn, n); err != nil {
		t.Fatal(err)
	}
	if err := noteDocs.Create(t.Context(), conn, &note{subject: "vol.t.a", text: "other"}); !kind.Is(err, kind.Conflict) {
		t.Errorf("create again: %v, want a conflict", err)
	}
	if _, err := noteDocs.Put(t.Context(), conn, &note{subject: "vol.t.a", text: "other"}); !kind.Is(err, kind.Conflict) {
		t.Errorf("put without the rev: %v, want a conflict", err)
	}
	got, err := notes.Await(t.Context(), "vol.t.a", func(n *note) bool { return n.text == "one" })
	if err != nil || got.rev == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	tries := 0
	got, err = notes.Change(t.Context(), "vol.t.a", func(n *note) bool {
		if tries++; tries == 1 { // another writer is faster
			if _, err := noteDocs.Put(t.Context(), conn, &note{subject: n.subject, text: "two", rev: n.rev}); err != nil {
				t.Error(err)
			}
		}
		n.text += "!"
		return true
	})
	if err != nil || got.text != "two!" || tries != 2 {
		t.Errorf("change: %+v after %d attempts, %v", got, tries, err)
	}
	stored, ok, err := noteDocs.Read(t.Context(), conn, "vol.t.a")
	if err != nil || !ok || stored.text != "two!" || stored.rev != got.rev {
		t.Errorf("read: %+v %v, %v", stored, ok, err)
	}
	if _, err := notes.Change(t.Context(), "vol.t.b", func(*note) bool { return true }); !kind.Is(err, kind.NotFound) {
		t.Errorf("change of a document that does not exist: %v", err)
	}
	if n, err := noteDocs.Put(t.Context(), conn, &note{subject: "vol.t.a", text: "-", rev: got.rev}); err != nil {
		t.Fatal(n, err)
	}
	if _, err := notes.Await(t.Context(), "vol.t.a", func(n *note) bool { return n.text == "-" }); err != nil {
		t.Fatal(err)
	}
	if err := noteDocs.Create(t.Context(), conn, &note{subject: "vol.t.a", text: "three"}); err != nil {
		t.Errorf("create after deletion: %v", err)
	}
}

func TestDocumentsExpireUnlessTheyAreInUse(t *testing.T) {
	now := time.Unix(1e9, 0)
	notes := NewTable(NewProgress(nil), noteDocs)
	for i, n := range []note{
		{text: "kept", changed: now.Add(-2 * time.Hour)},
		{text: "-", changed: now.Add(-2 * time.Hour)}, // expires
		{text: "-", changed: now.Add(-2 * time.Hour)}, // in use
		{text: "-", changed: now.Add(-time.Minute)},
	} {
		n.subject = fmt.Sprint(i)
		notes.Set(n)
	}
	notes.InUse = func(since time.Time) map[string]bool {
		if want := now.Add(-time.Hour); !since.Equal(want) {
			t.Errorf("in use since %v, want %v", since, want)
		}
		return map[string]bool{"2": true}
	}
	notes.Expire(now)
	var left []string
	for _, n := range notes.List(func(*note) bool { return true }) {
		left = append(left, n.subject)
	}
	if len(left) != 3 || notes.Ended != 3 {
		t.Errorf("left %v, ended %d; want 3 each", left, notes.Ended)
	}
	if _, ok := notes.Get("1"); ok {
		t.Error("note 1 did not expire")
	}
}

// A view does not wait for a document longer than its caller.
func TestAwaitEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	notes := NewTable(NewProgress(nil), noteDocs)
	if _, err := notes.Await(ctx, "a", func(*note) bool { return false }); err == nil {
		t.Error("await succeeded")
	}
}
