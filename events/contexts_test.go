package events_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"testing"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
)

// All that builds copy has a bound: what is past it is refused in words of its own,
// and what was stored can still be read.
func TestFilesOfBuildsAreBounded(t *testing.T) {
	const each, most = 1 << 20, 5
	log := openWith(t, eventstest.Start(t), events.Config{MaxContexts: most << 20})
	data := make([]byte, each)
	rand.Read(data)
	stored := 0
	for n := range most + 1 {
		err := log.PutContext(t.Context(), "alice", string(rune('a'+n)), bytes.NewReader(data))
		if err == nil {
			stored++
			continue
		}
		if !kind.Is(err, kind.Exhausted) || kind.Message(err) != "there is no room for more files of builds: the oldest go when they are a week old" {
			t.Errorf("past %d: %v", stored, err)
		}
	}
	if stored < 3 || stored > most {
		t.Errorf("%d MiB of %d were taken", stored, most)
	}
	if has, err := log.HasContext(t.Context(), "alice", string(rune('a'+most))); has || err != nil {
		t.Errorf("what was refused is there: %v, %v", has, err)
	}
	r, err := log.Context(t.Context(), "alice", "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A bound that the servers cannot set aside is made smaller.
func TestFilesOfBuildsFitWhereThereIsLittleRoom(t *testing.T) {
	log := openWith(t, eventstest.Start(t), events.Config{MaxContexts: 1 << 60})
	if err := log.PutContext(t.Context(), "alice", "a", bytes.NewReader([]byte("x"))); err != nil {
		t.Error(err)
	}
}
