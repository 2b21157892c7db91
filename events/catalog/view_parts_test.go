package catalog_test

import (
	"bytes"
	"crypto/rand"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

func randomPart(n int) ([]byte, template.Sum) {
	data := make([]byte, n)
	rand.Read(data)
	return data, template.SumOf(data)
}

func storedBytes(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Bytes
}

// The store of parts rejects uploads beyond its limit with an error of their own, without
// effect on other stores. Removed parts free space.
func TestTheStoreOfPartsIsBounded(t *testing.T) {
	srv := eventstest.Start(t)
	const most = 20 << 20
	log, err := events.Open(t.Context(), events.Config{InProcess: srv, Name: t.Name(), MaxStore: most})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	view := eventstest.View(t, log)
	var sums []template.Sum
	for err == nil {
		data, sum := randomPart(3 << 20)
		if err = log.CopyStore().Put(t.Context(), sum, data, false); err == nil {
			sums = append(sums, sum)
		}
		if len(sums) > 10 {
			t.Fatal("the store has no limit")
		}
	}
	if !kind.Is(err, kind.Exhausted) || len(sums) != 6 {
		t.Errorf("after %d parts of 3 MiB: %v", len(sums), err)
	}
	data, sum := randomPart(3 << 20)
	if err := log.PutPart(t.Context(), sum, data); !kind.Is(err, kind.Exhausted) {
		t.Errorf("a template's part in a full store: %v", err)
	}
	if _, err := view.CreateSandbox(t.Context(), "t", sandbox.NewID(), sandbox.Requested{}); err != nil {
		t.Errorf("a sandbox beside a full store: %v", err)
	}
	if err := log.PutContext(t.Context(), "t", "sum", bytes.NewReader(data[:1<<20])); err != nil {
		t.Errorf("a build's files beside a full store: %v", err)
	}
	c := copyOf(t, sums[0])
	if err := view.DropCopy(t.Context(), &c); err != nil {
		t.Fatalf("remove from a full store: %v", err)
	}
	if err := log.PutPart(t.Context(), sum, data); err != nil {
		t.Errorf("after a part was removed: %v", err)
	}
	if s := eventstest.Stream(t, srv, "OBJ_templates"); s.CachedInfo().Config.MaxBytes != most || storedBytes(t, s) > most {
		t.Errorf("limit %d, stored %d", s.CachedInfo().Config.MaxBytes, storedBytes(t, s))
	}
}

func copyOf(t *testing.T, sums ...template.Sum) sandbox.Copy {
	t.Helper()
	m := template.Manifest{Arch: runtime.GOARCH, Exact: true, Tar: int64(len(sums)) * template.PartSize, Parts: sums}
	raw, _, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Copy{Manifest: string(raw)}
}

// The remains of an interrupted transfer are removed: parts without a reference, and bytes
// without a name. Referenced parts and young ones stay.
func TestOrphansAreSwept(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	put := func() template.Sum {
		data, sum := randomPart(1 << 20)
		if err := log.CopyStore().Put(t.Context(), sum, data, false); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	shared, lone, orphan := put(), put(), put()
	snaps := []sandbox.Snapshot{{ID: sandbox.NewSnapshotID(), Tenant: "t", Copy: copyOf(t, shared, lone)}, {ID: sandbox.NewSnapshotID(), Tenant: "t", Copy: copyOf(t, shared)}}
	for i := range snaps {
		if err := log.PutSnapshot(t.Context(), &snaps[i]); err != nil {
			t.Fatal(err)
		}
	}
	s := eventstest.Stream(t, srv, "OBJ_templates")
	// The remains of a process that was killed while storing.
	_, err := eventstest.JetStream(t, srv).Publish(t.Context(), "$O.templates.C.cutoff", make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := view.SweepPartsOlder(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("%d young parts were swept, %v", n, err)
	}
	if n, err := view.SweepPartsOlder(t.Context(), 0); n != 2 || err != nil {
		t.Errorf("%d parts were swept, %v; want the orphan and the bytes without a name", n, err)
	}
	for sum, want := range map[template.Sum]bool{shared: true, lone: true, orphan: false} {
		if has, err := log.CopyStore().Has(t.Context(), sum); has != want || err != nil {
			t.Errorf("has %v, %v; want %v", has, err, want)
		}
	}
	gone, err := view.ChangeSnapshot(t.Context(), snaps[0].ID, func(s *sandbox.Snapshot) bool { s.Deleted = true; return true })
	if err == nil {
		err = view.DropCopy(t.Context(), &gone.Copy)
	}
	if err != nil {
		t.Fatal(err)
	}
	for sum, want := range map[template.Sum]bool{shared: true, lone: false} {
		if has, err := log.CopyStore().Has(t.Context(), sum); has != want || err != nil {
			t.Errorf("after its snapshot was deleted: has %v, %v; want %v", has, err, want)
		}
	}
	if size := storedBytes(t, s); size > 3<<19 {
		t.Errorf("%d bytes are left of one part", size)
	}
}
