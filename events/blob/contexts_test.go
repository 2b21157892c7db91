package blob_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
)

// Files of builds have a size limit. Uploads beyond it are rejected with an error of their
// own, and stored files remain readable.
func TestFilesOfBuildsAreBounded(t *testing.T) {
	const each, most = 1 << 20, 5
	log := eventstest.OpenWith(t, eventstest.Start(t), events.Config{MaxContexts: most << 20})
	data := make([]byte, each)
	rand.Read(data)
	stored := 0
	for n := range most + 1 {
		err := log.PutContext(t.Context(), "alice", string(rune('a'+n)), bytes.NewReader(data))
		if err == nil {
			stored++
			continue
		}
		if !kind.Is(err, kind.Exhausted) || kind.Message(err) != "the store of build files is full: files expire after a week" {
			t.Errorf("past %d: %v", stored, err)
		}
	}
	if stored < 3 || stored > most {
		t.Errorf("%d MiB of %d were accepted", stored, most)
	}
	if has, err := log.HasContext(t.Context(), "alice", string(rune('a'+most))); has || err != nil {
		t.Errorf("the rejected upload exists: %v, %v", has, err)
	}
	r, err := log.Context(t.Context(), "alice", "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A limit that the servers cannot reserve is reduced.
func TestTheLimitOfBuildFilesShrinksToTheDisk(t *testing.T) {
	log := eventstest.OpenWith(t, eventstest.Start(t), events.Config{MaxContexts: 1 << 60})
	if err := log.PutContext(t.Context(), "alice", "a", bytes.NewReader([]byte("x"))); err != nil {
		t.Error(err)
	}
}
