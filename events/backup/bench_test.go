package backup_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/backup"
	"github.com/millrace/millrace/events/natsd"
)

// BenchmarkBackup measures a backup, its verification and its restore with 1 GiB of output that
// does not compress, in messages of 256 KiB, and an incremental backup of one message.
func BenchmarkBackup(b *testing.B) {
	const size, count = 256 << 10, 4096
	serve := func() (string, jetstream.JetStream) {
		srv, err := natsd.Start(natsd.Config{Dir: b.TempDir(), Listen: "127.0.0.1:0"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(srv.Stop)
		nc, err := nats.Connect(srv.URL())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(64))
		if err != nil {
			b.Fatal(err)
		}
		return srv.URL(), js
	}
	url, js := serve()
	log, err := events.Open(b.Context(), events.Config{URL: url})
	if err != nil {
		b.Fatal(err)
	}
	log.Close()
	random := rand.NewChaCha8([32]byte{})
	data := make([]byte, size)
	for range count {
		random.Read(data)
		if _, err := js.PublishAsync("out.00.h.s.p", data, jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	k, err := backup.ParseKey("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	if err != nil {
		b.Fatal(err)
	}
	speed := func(name string, do func(dir string) error, dir string) {
		begun := time.Now()
		if err := do(dir); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(size*count)/1e6/time.Since(begun).Seconds(), name+"-MB/s")
	}
	for b.Loop() {
		dir := b.TempDir()
		run := func(dir string) error {
			_, err := backup.Run(b.Context(), backup.Options{Target: backup.Target{URL: url}, Dir: dir, Key: k})
			return err
		}
		speed("backup", run, dir)
		speed("verify", func(dir string) error {
			m, err := backup.ReadManifest(dir, "", k)
			if err == nil {
				_, err = backup.Verify(b.Context(), dir, m, k)
			}
			return err
		}, dir)
		if _, err := js.Publish(b.Context(), "out.00.h.s.p", data); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := run(dir); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(begun).Milliseconds()), "incremental-ms")
		other, _ := serve()
		speed("restore", func(dir string) error {
			_, err := backup.Restore(b.Context(), backup.RestoreOptions{Target: backup.Target{URL: other}, Dir: dir, Key: k})
			return err
		}, dir)
	}
}
