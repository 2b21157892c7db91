package events_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/natsd"
)

// As soon as a full disk has space again, waiting messages are stored, and all acknowledged
// ones are there.
func TestAServerRecoversFromAFullDisk(t *testing.T) {
	dir := smallDisk(t, 96<<20)
	srv, err := natsd.Start(natsd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(dir, "fill")
	if err := takeAll(fill); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	if err := os.Truncate(fill, 64<<20); err != nil {
		t.Fatal(err)
	}
	stored := 0
	store := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "s", fmt.Appendf(nil, "%d %s", stored, make([]byte, 512<<10)), jetstream.WithMsgID(strconv.Itoa(stored)), jetstream.WithRetryAttempts(0))
		if err == nil {
			stored++
		}
		return err
	}
	for store() == nil {
	}
	if stored == 0 {
		t.Fatal("nothing was stored before the disk was full")
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	want := stored + 20
	for deadline := time.Now().Add(time.Minute); stored < want; {
		if err := store(); err != nil && time.Now().After(deadline) {
			t.Fatalf("not stored although there is space: %v", err)
		}
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		msg, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		var n int
		if fmt.Sscan(string(msg.Data()), &n); n != i {
			t.Fatalf("message %d is %d", i, n)
		}
	}
}

// A server that starts on a full disk stores messages as soon as there is space, and in the
// end as many as a server that started with that space.
func TestAServerThatStartsOnAFullDiskRecovers(t *testing.T) {
	dir := smallDisk(t, 128<<20)
	begin := func() *natsd.Server {
		srv, err := natsd.Start(natsd.Config{Dir: filepath.Join(dir, "nats")})
		if err != nil {
			t.Fatal(err)
		}
		return srv
	}
	srv := begin()
	storeMiB(t, srv, 0, 1)
	srv.Stop()
	fill := filepath.Join(dir, "fill")
	takeAll(fill)
	srv = begin()
	defer func() { srv.Stop() }()
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	storeMiB(t, srv, 1, 80)
}

// storeMiB stores messages of 1 MiB each, numbered from from to before to.
func storeMiB(t *testing.T, srv *natsd.Server, from, to int) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); from < to; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a stopping server does not respond
		_, err := js.Publish(ctx, "s", make([]byte, 1<<20), jetstream.WithMsgID(strconv.Itoa(from)), jetstream.WithRetryAttempts(0))
		cancel()
		switch {
		case err == nil:
			from++
		case time.Now().After(deadline):
			t.Fatalf("after %d MiB: %v", from, err)
		}
	}
}

// smallDisk returns a directory on a file system of its own.
func smallDisk(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// takeAll writes to the file until the disk is full.
func takeAll(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; _, err = f.Write(make([]byte, size)) {
		}
	}
	return err
}
