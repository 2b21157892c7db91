package operations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
)

// lease stores the lease of a running or lost host.
func (h *fixture) lease(l fleet.Lease) {
	h.t.Helper()
	l.Epoch, l.TTL, l.Capacity = 1, time.Hour, 1
	if _, err := h.log.PutLease(h.t.Context(), l, 0); err != nil {
		h.t.Fatal(err)
	}
}

// The reason of each item states what can be done about it, and no more.
func TestUndrainableReasons(t *testing.T) {
	h := newFixture(t)
	drivers := []string{"gvisor", "microvm"}
	kept := []string{"gvisor 1", ""}
	h.lease(fleet.Lease{Host: "a", Drivers: drivers, Fits: kept, FileFits: []string{"files", ""}, CPU: "amd"})
	h.lease(fleet.Lease{Host: "b", Drivers: drivers, Fits: kept, FileFits: []string{"files", ""}, CPU: "arm"})
	h.lease(fleet.Lease{Host: "drains", Drivers: drivers, Fits: kept, FileFits: []string{"files", ""}, CPU: "amd", Draining: true})
	h.lease(fleet.Lease{Host: "gone", Drivers: drivers, Fits: kept, Gone: true})
	for _, tt := range []struct {
		name  string
		snap  sandbox.Snapshot
		state string
		want  []string // in the reason
		not   string
	}{
		{"files", sandbox.Snapshot{Host: "a", Driver: "gvisor", Fits: "files"}, "stays", []string{"not been copied", "drain to have it copied"}, "no other"},
		{"memory that only a host that drains could use", sandbox.Snapshot{Host: "a", Driver: "gvisor", Memory: true, Fits: "gvisor 1, CPU amd"}, "stays", []string{"drain to have it copied", "no other host could use it now"}, "again"},
		{"memory that no host could use, being copied", sandbox.Snapshot{Host: "a", Driver: "gvisor", Memory: true, Fits: "gvisor 0, CPU amd", Copy: sandbox.Copy{Wanted: true}}, "copying", []string{"being copied", "no other host could use it now"}, "drain"},
		{"usable on its host only", sandbox.Snapshot{Host: "a", Driver: "microvm"}, "stays", []string{"driver microvm", "on its host only", "delete it"}, "drain"},
		{"made while it drains", sandbox.Snapshot{Host: "drains", Driver: "gvisor", Fits: "files"}, "stays", []string{"drain again to have it copied"}, "no other"},
		{"of an unreachable host", sandbox.Snapshot{Host: "gone", Driver: "gvisor", Fits: "files"}, "stays", []string{"until its host is back"}, "drain"},
		{"being copied from an unreachable host", sandbox.Snapshot{Host: "gone", Driver: "gvisor", Fits: "files", Copy: sandbox.Copy{Wanted: true}}, "stays", []string{"until its host is back"}, "being copied"},
		{"failed copy", sandbox.Snapshot{Host: "a", Driver: "gvisor", Fits: "files", Copy: sandbox.Copy{Reason: "it is too deep"}}, "stays", []string{"too deep", "drain again to try again"}, "no other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.snap.ID, tt.snap.Tenant, tt.snap.Template, tt.snap.Taken = sandbox.NewSnapshotID(), "alice", "t", time.Now()
			if err := h.log.PutSnapshot(t.Context(), &tt.snap); err != nil {
				t.Fatal(err)
			}
			_, held, err := h.Hosts.Undrainable(t.Context(), tt.snap.Host)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range held {
				if x.ID != string(tt.snap.ID) {
					continue
				}
				for _, want := range tt.want {
					if !strings.Contains(x.Reason, want) {
						t.Errorf("reason %q does not contain %q", x.Reason, want)
					}
				}
				if x.State != tt.state || strings.Contains(x.Reason, tt.not) {
					t.Errorf("%s: %q; want %s, without %q", x.State, x.Reason, tt.state, tt.not)
				}
				return
			}
			t.Error("the snapshot is not listed")
		})
	}
}

func TestUndrainableSandbox(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	reason := func() string {
		_, held, err := h.Hosts.Undrainable(t.Context(), h.host.Name)
		if err != nil || len(held) != 1 || held[0].ID != string(st.ID) {
			t.Fatal(held, err)
		}
		return held[0].Reason
	}
	const only, none, snapshot = "on its host only", "no other host could", "create another from a snapshot"
	if got := reason(); !strings.Contains(got, only) || strings.Contains(got, snapshot) {
		t.Errorf("driver whose snapshots are usable on their host only: %s", got)
	}
	h.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour, Fits: []string{"fake 1"}, System: "debian"})
	if got := reason(); !strings.Contains(got, none) || strings.Contains(got, snapshot) {
		t.Errorf("no other host can use a snapshot: %s", got)
	}
	h.lease(fleet.Lease{Host: "a", Drivers: []string{"fake"}, Fits: []string{"fake 1"}, System: "debian"})
	if got := reason(); !strings.Contains(got, snapshot) {
		t.Errorf("another host can use a snapshot: %s", got)
	}
}
