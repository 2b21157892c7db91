package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

const manyWatched = 100_000

// watchIn starts to watch a directory. It fails the test unless the watch is served, or
// rejected for lack of resources; then r is nil.
func watchIn(t *testing.T, a *rig.API, box, dir string, recursive bool) (r *rig.Raw) {
	t.Helper()
	r = a.Dial(t, rig.Message(fsService+"WatchDir", map[string]any{"path": dir, "recursive": recursive}, "E2b-Sandbox-Id", box))
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		var msg struct {
			Start *struct{}
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal(e.Payload, &msg); err != nil {
			t.Fatalf("%s: %v", e.Payload, err)
		}
		switch {
		case msg.Start != nil:
			return r
		case msg.Error != nil:
			t.Logf("rejected: %+v", *msg.Error)
			if msg.Error.Code != "resource_exhausted" || !strings.Contains(msg.Error.Message, "kernel's limit of watched directories") {
				t.Fatalf("watch of %s: %s", dir, e.Payload)
			}
			r.Close()
			return nil
		}
	}
}

// seen reads a watch until it reports a name, or that events were dropped.
func seen(t *testing.T, r *rig.Raw, name string) (creates int, overflow bool) {
	t.Helper()
	for {
		ev := nextWatch(t, r)
		switch {
		case ev.Filesystem == nil:
		case ev.Filesystem.Overflow:
			return creates, true
		case ev.Filesystem.Type == "EVENT_TYPE_CREATE":
			if creates++; ev.Filesystem.Name == name {
				return creates, false
			}
		}
	}
}

// TestWatchOfManyNewFiles covers E90: a watch reports each of 10^5 new files, or that it
// dropped some.
func TestWatchOfManyNewFiles(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t).ID
	outputAndCode(t, a, box, "mkdir /dev/shm/many")
	r := watchIn(t, a, box, "/dev/shm/many", false)
	if r == nil {
		t.Fatal("one directory is not watched")
	}
	if got, code := outputAndCode(t, a, box, fmt.Sprintf("cd /dev/shm/many && seq %d | xargs touch && touch last && ls | wc -l", manyWatched)); got != fmt.Sprint(manyWatched+1) || code != 0 {
		t.Fatalf("%d %q", code, got)
	}
	n, overflow := seen(t, r, "last")
	t.Logf("%d files were reported; overflow: %v", n, overflow)
	if !overflow && n != manyWatched+1 {
		t.Errorf("%d files were reported, want %d", n, manyWatched+1)
	}
}

// TestWatchOfARenameStorm covers E90: a watch reports a storm of renames to its end, or that
// it dropped some.
func TestWatchOfARenameStorm(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t).ID
	outputAndCode(t, a, box, "mkdir /tmp/storm && touch /tmp/storm/a")
	r := watchIn(t, a, box, "/tmp/storm", false)
	if r == nil {
		t.Fatal("one directory is not watched")
	}
	const storm = `for (1 .. 20_000) { rename "a", "b" or die; rename "b", "a" or die }`
	if got, code := outputAndCode(t, a, box, "cd /tmp/storm && perl -e '"+storm+"' && touch last && echo done"); got != "done" || code != 0 {
		t.Fatalf("%d %q", code, got)
	}
	n, overflow := seen(t, r, "last")
	t.Logf("%d new names were reported; overflow: %v", n, overflow)
	if !overflow && n != 40_001 {
		t.Errorf("%d new names were reported, want 40001", n)
	}
}

// TestWatchOfManyDirectories covers E90: a watch of 10^5 directories is served or rejected for
// lack of resources, and takes nothing from another sandbox's watches, nor from later ones of
// the same sandbox.
func TestWatchOfManyDirectories(t *testing.T) {
	onlySandboxed(t)
	a := api(t)
	box, beside := a.Create(t).ID, a.Create(t).ID
	for _, b := range []string{box, beside} {
		outputAndCode(t, a, b, "mkdir /tmp/few /dev/shm/many")
	}
	other := watchIn(t, a, beside, "/tmp/few", true)
	if got, code := outputAndCode(t, a, box, fmt.Sprintf("cd /dev/shm/many && seq %d | xargs mkdir && ls | wc -l", manyWatched)); got != fmt.Sprint(manyWatched) || code != 0 {
		t.Fatalf("%d %q", code, got)
	}
	var watches []*rig.Raw
	for len(watches) < 3 { // more than the default limit of many hosts
		r := watchIn(t, a, box, "/dev/shm/many", true)
		if r == nil {
			break
		}
		watches = append(watches, r)
	}
	t.Logf("%d watches of %d directories each were served", len(watches), manyWatched)
	works := func(box string, r *rig.Raw, name string) {
		t.Helper()
		if r == nil {
			t.Fatalf("%s: no directory is watched", name)
		}
		outputAndCode(t, a, box, "touch /tmp/few/"+name)
		if n, overflow := seen(t, r, name); n != 1 || overflow {
			t.Errorf("%s was reported after %d, overflow: %v", name, n, overflow)
		}
	}
	works(beside, other, "before")
	works(beside, watchIn(t, a, beside, "/tmp/few", true), "during")
	for i, r := range watches {
		name := fmt.Sprintf("%d/%d", manyWatched, i)
		outputAndCode(t, a, box, "touch /dev/shm/many/"+name)
		if n, overflow := seen(t, r, name); overflow || n > i+1 {
			t.Errorf("%s was reported after %d, overflow: %v", name, n, overflow)
		}
		r.Close()
	}
	works(box, watchIn(t, a, box, "/tmp/few", true), "after")
}
