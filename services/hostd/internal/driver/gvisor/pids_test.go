//go:build linux

package gvisor

import (
	"strconv"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Each place has its own limit of processes, also one that was made from another's
// memory, and tells how many there are, not how many threads gVisor has.
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
		defer in.Destroy(t.Context()) //nolint:errcheck // it was looked at
		b := in.(*box)
		c, err := readConfig(b.r.in(configFile))
		if err != nil {
			t.Fatal(err)
		}
		limit, err := b.control.group(t.Context(), "Cgroups.ReadControlFiles", groupOp{File: groupFile{"pids", c.Linux.Cgroup, "pids.max"}})
		if err != nil || limit != strconv.Itoa(int(most)) {
			t.Errorf("the limit is %q, %v; want %d", limit, err, most)
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
