package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
)

// damagedBlock is a block of the stream HOSTS as nats-server 2.15.2 left it after kills,
// when the stream was compressed.
const damagedBlock = "testdata/nats-2.15.2-damaged-HOSTS.blk"

// damage overwrites the head of a block of the stream HOSTS with that of the damaged block,
// on a stopped server. The server does not notice at its start, because it checks the last
// record only.
func damage(t *testing.T, dir string) (path string, content []byte) {
	t.Helper()
	head, err := os.ReadFile(damagedBlock)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "$G", "streams", "HOSTS", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks of HOSTS: %v, %v", blocks, err)
	}
	path = blocks[len(blocks)-1]
	if content, err = os.ReadFile(path); err != nil || len(content) < 1<<10 {
		t.Fatalf("%s: %d bytes, %v", path, len(content), err)
	}
	copy(content[:len(content)-512], head)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(path), content
}

// A server with damaged files gets the stream again from the other two, which serve it all
// the time.
func TestADamagedCopyIsRebuiltFromTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	c := eventstest.StartCluster(t)
	log := c.Open()
	beat := leaseLoop(t, log)
	beat(20)
	victim := (c.Leader("HOSTS") + 1) % 3
	c.Stop(victim)
	block, damaged := damage(t, c.Dir(victim))
	c.Resume(victim)
	aside := filepath.Join(c.Dir(victim), "damaged", "HOSTS", "stream", "msgs", block)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		beat(5)
		if _, err := os.Stat(aside); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the damaged files are still in use")
		}
	}
	got, err := os.ReadFile(aside)
	if err != nil || !bytes.HasPrefix(got, damaged[:len(damaged)-512]) {
		t.Errorf("the damaged block was not kept: %d bytes of %d, %v", len(got), len(damaged), err)
	}
	nc, err := nats.Connect(c.URL(), nats.Token(eventstest.ClusterToken))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for deadline := time.Now().Add(time.Minute); ; {
		beat(5)
		if last = incomplete(t.Context(), js, "HOSTS"); last == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the copy is not complete: %s", last)
		}
	}
	// A leader on the rebuilt copy has all messages.
	c.Stop((victim + 1) % 3)
	beat(20)
}

// A lone server cannot get a damaged stream from others. It continues without it, and
// monitors of the log report that within seconds; it does not restart for ever.
func TestADamagedStreamOfALoneServerRaisesAnAlarm(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts take seconds")
	}
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	watched := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { watched <- log.MonitorStreams(ctx) }()
	defer func() { stop(); <-watched }()
	leaseLoop(t, log)(20)
	if err := log.Healthy(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	srv.Stop()
	damage(t, srv.Dir())
	srv.Resume()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for rev := uint64(20); ctx.Err() == nil; { // like a host
			next, err := log.PutLease(ctx, fleet.Lease{Host: "h", Epoch: 1, TTL: time.Minute}, rev)
			if rev = next; kind.Is(err, kind.Conflict) {
				_, rev, _, _ = log.Lease(ctx, "h")
			}
		}
	}()
	defer func() { stop(); <-renewed }()
	const want = "stream HOSTS cannot be written: "
	for deadline := time.Now().Add(time.Minute); ; {
		within, cancel := context.WithTimeout(ctx, time.Second)
		err := log.Healthy(within)
		cancel()
		if kind.Is(err, kind.Unavailable) && strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "write error") {
			return
		}
		<-time.After(50 * time.Millisecond) // between two checks
		if time.Now().After(deadline) {
			t.Fatalf("no alarm: %v", err)
		}
	}
}

// incomplete returns why not all copies of a stream are complete; "" if they are.
func incomplete(ctx context.Context, js jetstream.JetStream, stream string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err.Error()
	}
	info := s.CachedInfo().Cluster
	for _, r := range info.Replicas {
		if !r.Current || r.Offline {
			raw, _ := json.Marshal(info)
			return string(raw)
		}
	}
	return ""
}

// leaseLoop returns a function that renews a lease n times in a row.
func leaseLoop(t *testing.T, log *events.Log) func(n int) {
	t.Helper()
	var rev uint64
	return func(n int) {
		t.Helper()
		for range n {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			next, err := log.PutLease(ctx, fleet.Lease{Host: "h", Epoch: 1, TTL: time.Minute}, rev)
			cancel()
			if err != nil {
				t.Fatalf("renew the lease after %d: %v", rev, err)
			}
			rev = next
		}
	}
}
