//go:build linux

package drivertest

import (
	"context"
	"encoding/gob"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Bench measures what a sandbox costs: the time from Create to the first answer
// of its shim, of `true` in it, and of Destroy.
func Bench(b *testing.B, d driver.Driver) {
	caps, err := d.Probe(b.Context())
	if err != nil {
		b.Skip(err)
	}
	b.Log(caps.Notes)
	root := b.TempDir()
	var created, accepted, ran, destroyed []time.Duration
	for b.Loop() {
		s := driver.Spec{ID: sandbox.NewID(), ShimPath: self, ShimArgs: []string{shimArg}, MemoryMiB: 512, CPUMilli: 1000}
		s.Dir = filepath.Join(root, string(s.ID))
		if err := os.Mkdir(s.Dir, 0o700); err != nil {
			b.Fatal(err)
		}
		t0 := time.Now()
		in, err := d.Create(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		exchange(b, in, request{Call: "none"})
		t2 := time.Now()
		exchange(b, in, request{Args: []string{"true"}, UID: -1})
		t3 := time.Now()
		if err := in.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		created, accepted = append(created, t1.Sub(t0)), append(accepted, t2.Sub(t0))
		ran, destroyed = append(ran, t3.Sub(t2)), append(destroyed, time.Since(t3))
	}
	for _, m := range []struct {
		name string
		all  []time.Duration
	}{{"create", created}, {"accept", accepted}, {"true", ran}, {"destroy", destroyed}} {
		slices.Sort(m.all)
		b.ReportMetric(ms(m.all[len(m.all)/2]), m.name+"-p50-ms")
		b.ReportMetric(ms(m.all[len(m.all)*99/100]), m.name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func exchange(b *testing.B, in driver.Instance, req request) {
	conn, err := in.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		b.Fatal(err)
	}
	var resp response
	if err := gob.NewDecoder(conn).Decode(&resp); err != nil {
		b.Fatal(err)
	}
}
