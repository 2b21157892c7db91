//go:build linux

package gvisor

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Each sandbox has its own limit of processes, also one that was made from another's
// memory, and reports how many processes it has, not how many threads gVisor has.
func TestLimitOfProcesses(t *testing.T) {
	d := newDriver(t)
	if _, err := d.Probe(t.Context()); err != nil {
		t.Skip(err)
	}
	from := ""
	for _, most := range []uint32{48, 96, 32} {
		s := driver.Spec{ID: sandbox.NewID(), Dir: t.TempDir(), ShimPath: "/bin/sh", ShimArgs: []string{"-c", "sleep 1000 & sleep 1000"}, PIDs: most, From: from}
		in, err := d.Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Destroy(t.Context())
		b := in.(*instance)
		c, err := readConfig(b.r.in(configFile))
		if err != nil {
			t.Fatal(err)
		}
		limit, err := b.control.group(t.Context(), "Cgroups.ReadControlFiles", groupOp{File: groupFile{"pids", c.Linux.Cgroup, "pids.max"}})
		if err != nil || limit != strconv.Itoa(int(most)) {
			t.Errorf("limit %q, %v; want %d", limit, err, most)
		}
		if st, err := in.Stats(t.Context()); err != nil || st.Processes < 1 || st.Processes > 3 {
			t.Errorf("%d processes, %v; want the shell and what it has started", st.Processes, err)
		}
		from = t.TempDir()
		if err := in.Snapshot(t.Context(), from, true); err != nil {
			t.Fatal(err)
		}
	}
}

// A sandbox whose pause is in progress, or whose gVisor does not respond, is measured
// without waiting for it.
func TestStatsWithoutResponse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		hold, letGo func(b *instance)
	}{
		{"stopped", func(b *instance) { b.transition.Lock(); b.r.record(changing) }, func(b *instance) { b.r.record(running); b.transition.Unlock() }},
		{"silent", func(b *instance) { unix.Kill(b.State.PID, unix.SIGSTOP) }, func(b *instance) { unix.Kill(b.State.PID, unix.SIGCONT) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, in := shellIn(t, "sleep 1000 & sleep 1000")
			defer in.Destroy(t.Context())
			before, err := in.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			measured := make(chan driver.Stats, 1)
			tt.hold(in.(*instance))
			defer tt.letGo(in.(*instance))
			go func() {
				s, _ := in.Stats(t.Context())
				measured <- s
			}()
			select {
			case s := <-measured:
				if s.CPU == 0 || s.DiskBytes == 0 || s.Processes != before.Processes {
					t.Errorf("got %+v, want %+v", s, before)
				}
			case <-time.After(time.Minute):
				t.Error("Stats waits")
			}
		})
	}
}
