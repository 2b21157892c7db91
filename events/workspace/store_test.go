package workspace_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
)

var scope = workspace.Scope{Tenant: "alice", App: "app", Set: "set"}

func start(t *testing.T, log *events.Log) *workspace.Store {
	t.Helper()
	s := log.Workspaces()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	synced(t, s)
	return s
}

func synced(t *testing.T, s *workspace.Store) {
	t.Helper()
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *workspace.Store, p workspace.Path, data string) {
	t.Helper()
	if _, err := s.Put(t.Context(), scope, p, strings.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *workspace.Store, p workspace.Path) string {
	t.Helper()
	f, err := s.Stat(scope, p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s.Open(t.Context(), &f))
	if err != nil || int64(len(got)) != f.Size {
		t.Fatalf("%d bytes of %d, %v", len(got), f.Size, err)
	}
	return string(got)
}

// What is stored is what is read at any gateway, also after a restart of the server.
func TestStored(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	s := start(t, log)
	large := make([]byte, 3<<20+1)
	rand.Read(large)
	all := map[workspace.Path]string{"a": "1", "a/b": "", "large": string(large)}
	for p, data := range all {
		put(t, s, p, data)
	}
	put(t, s, "a", "22")
	all["a"] = "22"
	srv.Restart()
	other := start(t, eventstest.Open(t, srv))
	for p, data := range all {
		for _, s := range []*workspace.Store{s, other} {
			if got := read(t, s, p); got != data {
				t.Errorf("%s: %d bytes", p, len(got))
			}
		}
	}
	want := workspace.Usage{Scope: scope, Bytes: int64(2 + len(large)), Files: 3}
	if got := other.Workspaces("alice"); len(got) != 1 || got[0] != want || len(other.Workspaces("bob")) != 0 {
		t.Errorf("%+v", got)
	}
	if err := other.Remove(t.Context(), scope, "a"); err != nil {
		t.Fatal(err)
	}
	synced(t, s)
	if _, err := s.Stat(scope, "a"); !kind.Is(err, kind.NotFound) {
		t.Errorf("a removed file: %v", err)
	}
	if err := s.Remove(t.Context(), scope, "a"); !kind.Is(err, kind.NotFound) {
		t.Errorf("remove it again: %v", err)
	}
	put(t, s, "a", "3")
	if err := s.RemoveAll(t.Context(), scope); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(t.Context(), scope); !kind.Is(err, kind.NotFound) {
		t.Errorf("remove all again: %v", err)
	}
	if _, ok := s.Usage(scope); ok {
		t.Error("an empty workspace exists")
	}
}

// broken ends in an error after its data.
type broken struct{ r io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// An interrupted upload leaves the older file, and is never visible.
func TestInterruptedUpload(t *testing.T) {
	s := start(t, eventstest.Open(t, eventstest.Start(t)))
	put(t, s, "a", "old")
	for _, p := range []workspace.Path{"a", "b"} {
		for _, size := range []int{0, 10, 1 << 20} {
			if _, err := s.Put(t.Context(), scope, p, broken{bytes.NewReader(make([]byte, size))}); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, %d bytes: %v", p, size, err)
			}
		}
	}
	if got := read(t, s, "a"); got != "old" {
		t.Errorf("%q", got)
	}
	if files, _ := s.List(scope, "", "", 10); len(files) != 1 {
		t.Errorf("%+v", files)
	}
}

// Of concurrent uploads to one path, at two gateways, one is valid as a whole.
func TestLastWholeFileWins(t *testing.T) {
	srv := eventstest.Start(t)
	stores := []*workspace.Store{start(t, eventstest.Open(t, srv)), start(t, eventstest.Open(t, srv))}
	const size = 1 << 20
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			data := bytes.Repeat([]byte(strconv.Itoa(n)), size)
			if _, err := stores[n%2].Put(t.Context(), scope, "a", bytes.NewReader(data)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var got [2]string
	for i, s := range stores {
		synced(t, s)
		got[i] = read(t, s, "a")
	}
	if got[0] != got[1] || len(got[0]) != size || strings.Count(got[0], got[0][:1]) != size {
		t.Errorf("%d and %d bytes", len(got[0]), len(got[1]))
	}
}

func TestPages(t *testing.T) {
	s := start(t, eventstest.Open(t, eventstest.Start(t)))
	for _, p := range []workspace.Path{"b", "a/2", "a/1", "a.txt", "ab"} {
		put(t, s, p, "x")
	}
	for _, tt := range []struct {
		prefix string
		after  workspace.Path
		limit  int
		want   string
		more   bool
	}{
		{"", "", 10, "a.txt a/1 a/2 ab b", false},
		{"", "", 2, "a.txt a/1", true},
		{"", "a/1", 2, "a/2 ab", true},
		{"", "ab", 2, "b", false},
		{"", "a/15", 1, "a/2", true}, // removed since
		{"a", "", 10, "a.txt a/1 a/2 ab", false},
		{"a/", "", 10, "a/1 a/2", false},
		{"a/", "a/1", 1, "a/2", false},
		{"a/", "z", 1, "", false},
		{"z", "", 10, "", false},
	} {
		files, more := s.List(scope, tt.prefix, tt.after, tt.limit)
		var got []string
		for _, f := range files {
			got = append(got, string(f.Path))
		}
		if strings.Join(got, " ") != tt.want || more != tt.more {
			t.Errorf("%+v: %v, %v", tt, got, more)
		}
	}
}

// A full store rejects uploads, and its files stay readable. Space is free again after the grace
// period of removed ones.
func TestFullStore(t *testing.T) {
	log := eventstest.OpenWith(t, eventstest.Start(t), events.Config{MaxWorkspaces: 4 << 20})
	s := start(t, log)
	data := make([]byte, 3<<20)
	rand.Read(data)
	put(t, s, "a", string(data))
	upload := func() error {
		_, err := s.Put(t.Context(), scope, "b", bytes.NewReader(data))
		return err
	}
	if err := upload(); !kind.Is(err, kind.Exhausted) || kind.Message(err) != "the store of workspaces is full: remove files" {
		t.Errorf("%v", err)
	}
	if got := read(t, s, "a"); got != string(data) {
		t.Error("the stored file is damaged")
	}
	f, err := s.Stat(scope, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(t.Context(), scope); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s.Open(t.Context(), &f)); err != nil || len(got) != len(data) {
		t.Errorf("a reader of a removed file: %d bytes, %v", len(got), err)
	}
	if err := s.Sweep(t.Context(), time.Now().Add(workspace.Grace), false); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(s.Open(t.Context(), &f)); !kind.Is(err, kind.NotFound) {
		t.Errorf("after the grace period: %v", err)
	}
	if err := upload(); err != nil {
		t.Errorf("after that: %v", err)
	}
	if err := s.Sweep(t.Context(), time.Now().Add(48*time.Hour), true); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Stat(scope, "b"); err != nil || got.Size != int64(len(data)) {
		t.Errorf("after a sweep: %+v, %v", got, err)
	}
}

// An upload and a download continue when the server was away.
func TestOutage(t *testing.T) {
	srv := eventstest.Start(t)
	s := start(t, eventstest.Open(t, srv))
	data := make([]byte, 4<<20)
	rand.Read(data)
	restarting := func(r io.Reader) io.Reader {
		return io.MultiReader(io.LimitReader(r, 1<<20), after(func() { srv.Restart() }), r)
	}
	if _, err := s.Put(t.Context(), scope, "a", restarting(bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}
	f, err := s.Stat(scope, "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(restarting(s.Open(t.Context(), &f))); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// after is an empty reader that calls itself.
type after func()

func (a after) Read([]byte) (int, error) {
	a()
	return 0, io.EOF
}
