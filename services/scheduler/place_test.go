package scheduler

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestPlace(t *testing.T) {
	ns, process, x := []string{"namespace"}, []string{"process"}, []string{"x"}
	tests := []struct {
		name   string
		driver string
		req    sandbox.Requested
		from   origin
		hosts  []hostCapacity
		want   string // a host, or empty
		refuse kind.Kind
		wait   bool
		starts bool // refused temporarily as Unavailable, because hosts are starting
	}{
		{name: "no host at all is unavailable", refuse: kind.Unavailable},
		{name: "a draining host is ignored", hosts: []hostCapacity{{Host: "a", Capacity: 9, Draining: true}}, refuse: kind.Unavailable},
		{name: "a full host is exhausted", hosts: []hostCapacity{{Host: "a", Capacity: 1, Used: 1}}, refuse: kind.Exhausted},
		{name: "capacity zero is exhausted", hosts: []hostCapacity{{Host: "a"}}, refuse: kind.Exhausted},
		{name: "an overloaded host accepts nothing", hosts: []hostCapacity{{Host: "a", Capacity: 1, Used: 3}}, refuse: kind.Exhausted},
		{name: "the last capacity is used", hosts: []hostCapacity{{Host: "a", Capacity: 2, Used: 1}}, want: "a"},
		{name: "the lowest utilization wins, not the lowest count", hosts: []hostCapacity{{Host: "a", Capacity: 4, Used: 2}, {Host: "b", Capacity: 100, Used: 3}}, want: "b"},
		{name: "names break ties", hosts: []hostCapacity{{Host: "b", Capacity: 2}, {Host: "a", Capacity: 2}}, want: "a"},
		{name: "empty hosts of any size are equal", hosts: []hostCapacity{{Host: "b", Capacity: 1000}, {Host: "a", Capacity: 1}}, want: "a"},
		{name: "a driver is found by name", driver: "gvisor", hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns}, {Host: "b", Capacity: 9, Used: 8, Drivers: []string{"namespace", "gvisor"}}}, want: "b"},
		{name: "a level is never lowered", driver: "gvisor", hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns}}, refuse: kind.Unavailable},
		{name: "only full hosts have the driver", driver: "gvisor", hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns}, {Host: "b", Capacity: 1, Used: 1, Drivers: []string{"gvisor"}}}, refuse: kind.Exhausted},
		{name: "an uncertain host is waited for", hosts: []hostCapacity{{Host: "a", Capacity: 9, Uncertain: true}}, wait: true},
		{name: "an uncertain host is waited for before a refusal for lack of capacity", hosts: []hostCapacity{{Host: "a", Capacity: 9, Uncertain: true}, {Host: "b", Capacity: 1, Used: 1}}, wait: true},
		{name: "an uncertain host is not waited for if another has capacity", hosts: []hostCapacity{{Host: "a", Capacity: 9, Uncertain: true}, {Host: "b", Capacity: 1}}, want: "b"},
		{name: "a starting host is waited for", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}}, refuse: kind.Unavailable, starts: true},
		{name: "a starting host is not waited for if another has capacity", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}, {Host: "b", Capacity: 9, Used: 8}}, want: "b"},
		{name: "a starting host and a full one", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}, {Host: "b", Capacity: 1, Used: 1}}, refuse: kind.Unavailable, starts: true},
		{name: "a starting host and an uncertain one", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}, {Host: "b", Capacity: 9, Uncertain: true}}, wait: true},
		{name: "a full starting host is full", hosts: []hostCapacity{{Host: "a", Capacity: 1, Used: 1, Starting: true}}, refuse: kind.Exhausted},
		{name: "a starting host with unknown drivers may have any", driver: "gvisor", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}}, refuse: kind.Unavailable, starts: true},
		{name: "a starting host with known drivers has only those", driver: "gvisor", hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true, Drivers: ns}}, refuse: kind.Unavailable},
		{name: "a snapshot on a starting host", from: origin{host: "b", driver: "x", fits: "x 1"}, hosts: []hostCapacity{{Host: "b", Capacity: 9, Starting: true}}, refuse: kind.Unavailable, starts: true},
		{name: "a snapshot with a copy and a starting host", from: origin{host: "b", driver: "x", fits: "x 1", copied: true}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Starting: true}}, refuse: kind.Unavailable, starts: true},
		{name: "volumes on a starting host", req: sandbox.Requested{VolumeHost: "b", Volumes: []sandbox.Mount{{}}}, hosts: []hostCapacity{{Host: "a", Capacity: 9}, {Host: "b", Capacity: 9, Starting: true}}, refuse: kind.Unavailable, starts: true},
		{name: "a host with the isolation level is found", req: sandbox.Requested{Isolation: "kernel"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns, Isolations: process}, {Host: "b", Capacity: 9, Used: 8, Drivers: []string{"namespace", "gvisor"}, Isolations: []string{"process", "kernel"}}}, want: "b"},
		{name: "a stronger level is accepted", req: sandbox.Requested{Isolation: "process"}, hosts: []hostCapacity{{Host: "b", Capacity: 9, Drivers: []string{"microvm"}, Isolations: []string{"machine"}}}, want: "b"},
		{name: "a weaker level is refused", req: sandbox.Requested{Isolation: "machine"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns, Isolations: process}}, refuse: kind.Unavailable},
		{name: "an unknown level is refused", req: sandbox.Requested{Isolation: "process"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: ns}, {Host: "b", Capacity: 9}}, refuse: kind.Unavailable},
		{name: "a driver by name with a lower level", driver: "namespace", req: sandbox.Requested{Isolation: "kernel"}, hosts: []hostCapacity{{Host: "b", Capacity: 9, Drivers: []string{"namespace", "gvisor"}, Isolations: []string{"process", "kernel"}}}, refuse: kind.Unavailable},
		{name: "only full hosts have the level", req: sandbox.Requested{Isolation: "process"}, hosts: []hostCapacity{{Host: "a", Capacity: 1, Used: 1, Drivers: ns, Isolations: process}, {Host: "b", Capacity: 9, Drivers: []string{"direct"}, Isolations: []string{"none"}}}, refuse: kind.Exhausted},
		{name: "a host with the template wins over an emptier one", req: sandbox.Requested{Template: "browser"}, hosts: []hostCapacity{{Host: "a", Capacity: 9}, {Host: "b", Capacity: 9, Used: 8, Templates: []string{"browser"}}}, want: "b"},
		{name: "a full host with the template does not win", req: sandbox.Requested{Template: "browser"}, hosts: []hostCapacity{{Host: "a", Capacity: 9}, {Host: "b", Capacity: 9, Used: 9, Templates: []string{"browser"}}}, want: "a"},
		{name: "enough memory left", req: sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 100}}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Memory: quota{1000, 901}}, {Host: "b", Capacity: 9, Used: 8, Memory: quota{1000, 900}}}, want: "b"},
		{name: "no memory left", req: sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 100}}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Memory: quota{1000, 901}}}, refuse: kind.Exhausted},
		{name: "no CPU left", req: sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 2000}}, hosts: []hostCapacity{{Host: "a", Capacity: 9, CPU: quota{8000, 6001}}}, refuse: kind.Exhausted},
		{name: "without a limit nothing is counted", hosts: []hostCapacity{{Host: "a", Capacity: 9, Memory: quota{1000, 1000}, CPU: quota{1, 1}}}, want: "a"},
		{name: "unknown totals are not enforced", req: sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 1 << 30, CPUMilli: 1 << 30}}, hosts: []hostCapacity{{Host: "a", Capacity: 9}}, want: "a"},
		{name: "a snapshot stays on its host", req: sandbox.Requested{Origin: sandbox.Origin{FromHost: "b"}}, hosts: []hostCapacity{{Host: "a", Capacity: 9}, {Host: "b", Capacity: 9, Used: 8}}, want: "b"},
		{name: "a snapshot on a lost host", req: sandbox.Requested{Origin: sandbox.Origin{FromHost: "b"}}, hosts: []hostCapacity{{Host: "a", Capacity: 9}}, refuse: kind.Unavailable},
		{name: "a snapshot on a full host", req: sandbox.Requested{Origin: sandbox.Origin{FromHost: "b"}}, hosts: []hostCapacity{{Host: "a", Capacity: 9}, {Host: "b", Capacity: 8, Used: 8}}, refuse: kind.Exhausted},
		{name: "a snapshot on a full host goes to a host that can use it", from: origin{host: "b", driver: "x", fits: "x 1"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}, {Host: "b", Capacity: 8, Used: 8}}, want: "a"},
		{name: "a snapshot on a draining host", from: origin{host: "b", driver: "x", fits: "x 1"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}, {Host: "b", Capacity: 8, Draining: true}}, want: "a"},
		{name: "a snapshot stays on its host while it has capacity", from: origin{host: "b", driver: "x", fits: "x 1", copied: true}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}, {Host: "b", Capacity: 9, Used: 8}}, want: "b"},
		{name: "a host with a copy is equivalent", from: origin{host: "b", driver: "x", fits: "x 1", copied: true, tree: "t"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Templates: []string{"t"}, Drivers: x, Fits: fits("x 1")}, {Host: "b", Capacity: 9, Used: 8}, {Host: "c", Capacity: 9, Drivers: x, Fits: fits("x 1")}}, want: "a"},
		{name: "a snapshot on a lost host, with a copy", from: origin{host: "b", driver: "x", fits: "x 1", copied: true}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}}, want: "a"},
		{name: "a snapshot on a lost host, without a copy", from: origin{host: "b", driver: "x", fits: "x 1"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}}, refuse: kind.Unavailable},
		{name: "a snapshot on an uncertain host, without a copy", from: origin{host: "b", driver: "x", fits: "x 1"}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}, {Host: "b", Capacity: 9, Uncertain: true}}, wait: true},
		{name: "a snapshot that no other host can use", from: origin{host: "b", driver: "x", fits: "x 2", copied: true}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 1")}}, refuse: kind.Unavailable},
		{name: "memory of a driver build that only another host has", from: origin{host: "a", driver: "x", fits: "x 1", needs: fleet.Needs{CPU: true}}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 2")}, {Host: "b", Capacity: 9, Drivers: x, Used: 8, Fits: fits("x 1")}}, want: "b"},
		{name: "memory of a driver build that no host has", from: origin{host: "a", driver: "x", fits: "x 1", needs: fleet.Needs{CPU: true}}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("x 2")}}, refuse: kind.Unavailable},
		{name: "a snapshot tied to its host", from: origin{host: "b", driver: "x", copied: true}, hosts: []hostCapacity{{Host: "a", Capacity: 9, Drivers: x, Fits: fits("")}}, refuse: kind.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := tt.req
			req.Driver = tt.driver
			from := tt.from
			if from.host == "" {
				from.host = req.FromHost
			}
			got := place(&req, from, tt.hosts)
			switch {
			case tt.wait:
				if got.Host != nil || got.Refused != nil {
					t.Errorf("place = %+v; want to wait", got)
				}
			case tt.want != "":
				if got.Host == nil || got.Host.Host != tt.want {
					t.Errorf("place = %+v; want host %s", got, tt.want)
				}
			case got.Refused == nil || kind.Kind(got.Refused.Kind) != tt.refuse || got.Starting != tt.starts:
				t.Errorf("place = %+v; want refused as %v, starting: %v", got, tt.refuse, tt.starts)
			}
		})
	}
}

// Files go to the first driver that can use them, regardless of the driver that made them; memory goes only to the
// driver that made it; a snapshot that no host declares usable only to the host that made it.
func TestPlaceChoosesADriverForASnapshot(t *testing.T) {
	lease := fleet.Lease{Drivers: []string{"gvisor", "namespace"}, Fits: []string{"build 1", "files"}, FileFits: []string{"files", ""}, CPU: "amd"}
	kernel := []string{"kernel", "process"}
	for _, c := range []struct {
		name string
		req  sandbox.Requested
		from origin
		want string // empty: refused
	}{
		{"files of the other driver", sandbox.Requested{}, origin{host: "b", driver: "namespace", fits: "files", copied: true}, "gvisor"},
		{"the same on its own host", sandbox.Requested{}, origin{host: "a", driver: "namespace", fits: "files"}, "gvisor"},
		{"files with a required driver", sandbox.Requested{Driver: "namespace"}, origin{host: "a", driver: "gvisor", fits: "files"}, "namespace"},
		{"files with a required level", sandbox.Requested{Isolation: "kernel"}, origin{host: "a", driver: "namespace", fits: "files"}, "gvisor"},
		{"files in an old form, on their host", sandbox.Requested{}, origin{host: "a", driver: "namespace", fits: "build 0"}, "namespace"},
		{"files in an old form, elsewhere", sandbox.Requested{}, origin{host: "b", driver: "gvisor", fits: "build 1", copied: true}, ""},
		{"memory", sandbox.Requested{}, origin{host: "b", driver: "gvisor", fits: "build 1, CPU amd", copied: true, needs: fleet.Needs{CPU: true}}, "gvisor"},
		{"memory of another build, on its own host", sandbox.Requested{}, origin{host: "a", driver: "gvisor", fits: "build 0, CPU amd", needs: fleet.Needs{CPU: true}}, ""},
		{"memory of another CPU, on its own host", sandbox.Requested{}, origin{host: "a", driver: "gvisor", fits: "build 1, CPU arm", needs: fleet.Needs{CPU: true}}, ""},
		{"memory on its own host, whose files changed", sandbox.Requested{}, origin{host: "a", driver: "gvisor", fits: "build 1, CPU amd on debian 0", needs: fleet.Needs{CPU: true, System: true}}, "gvisor"},
		{"memory tied to its host", sandbox.Requested{}, origin{host: "a", driver: "gvisor", needs: fleet.Needs{CPU: true}}, "gvisor"},
		{"memory with another required driver", sandbox.Requested{Driver: "namespace"}, origin{host: "a", driver: "gvisor", fits: "build 1, CPU amd", needs: fleet.Needs{CPU: true}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := place(&c.req, c.from, []hostCapacity{{Host: "a", Capacity: 9, Drivers: lease.Drivers, Isolations: kernel, Fits: lease.Fit}})
			if v.Driver != c.want || (c.want == "") != (v.Refused != nil) {
				t.Errorf("got %+v, want driver %q", v, c.want)
			}
		})
	}
}

func TestPlaceSpreads(t *testing.T) {
	hosts := []hostCapacity{{Host: "a", Capacity: 3}, {Host: "b", Capacity: 3}, {Host: "c", Capacity: 3}}
	for range 9 {
		v := place(&sandbox.Requested{}, origin{}, hosts)
		if v.Host == nil {
			t.Fatalf("refused with capacity left: %+v", hosts)
		}
		v.Host.Used++
		for _, r := range hosts {
			for _, o := range hosts {
				if r.Used-o.Used > 1 {
					t.Fatalf("uneven: %+v", hosts)
				}
			}
		}
	}
	if v := place(&sandbox.Requested{}, origin{}, hosts); v.Refused == nil {
		t.Fatalf("tenth sandbox of nine placed on %v", v.Host)
	}
}

// The scheduler names the driver: the first one that meets the request.
func TestPlaceNamesTheDriver(t *testing.T) {
	hosts := []hostCapacity{{Host: "a", Capacity: 9, Drivers: []string{"direct", "namespace", "gvisor"}, Isolations: []string{"none", "process", "kernel"}}}
	for level, want := range map[sandbox.Isolation]string{"": "direct", "none": "direct", "process": "namespace", "kernel": "gvisor"} {
		if v := place(&sandbox.Requested{Isolation: level}, origin{}, hosts); v.Driver != want {
			t.Errorf("isolation %q: driver %q, want %q", level, v.Driver, want)
		}
	}
}

func TestAPausedSandboxUsesNoCPU(t *testing.T) {
	var r hostCapacity
	req := sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 1000, MemoryMiB: 64}}
	r.take(&req, false)
	r.take(&req, true)
	if r.Used != 2 || r.CPU.Used != 1000 || r.Memory.Used != 128 {
		t.Errorf("%+v", r)
	}
}

func fits(all string) func(string, fleet.Needs) string {
	return func(string, fleet.Needs) string { return all }
}

// The refusal names a required isolation that the snapshot's driver does not have.
func TestASnapshotsDriverHasTooLittleIsolation(t *testing.T) {
	hosts := []hostCapacity{{Host: "a", Capacity: 9, Drivers: []string{"gvisor", "namespace"}, Isolations: []string{"kernel", "process"}}}
	req := sandbox.Requested{Origin: sandbox.Origin{FromHost: "a"}, Driver: "namespace", Isolation: sandbox.IsolationKernel}
	v := place(&req, origin{host: "a", driver: "namespace"}, hosts)
	if v.Refused == nil || !strings.Contains(v.Refused.Reason, "made with driver namespace") {
		t.Errorf("%+v", v)
	}
}

// A limit that a create requires must be enforced by the driver; a default limit need not.
func TestDemandedLimits(t *testing.T) {
	hosts := []hostCapacity{{Host: "a", Drivers: []string{"lax", "strict"}, Enforced: []string{"pids", "cpu memory disk pids"}, Capacity: 1}, {Host: "b", Drivers: []string{"lax"}, Enforced: []string{"pids"}, Capacity: 9}}
	memory := []sandbox.Limit{sandbox.LimitMemory}
	for _, tt := range []struct {
		name         string
		req          sandbox.Requested
		hosts        []hostCapacity
		host, driver string
	}{
		{"a default", sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 64}}, hosts, "a", "lax"},
		{"required", sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 64}, Demanded: memory}, hosts, "a", "strict"},
		{"required of a driver that cannot", sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 64}, Demanded: memory, Driver: "lax"}, hosts, "", ""},
		{"required of hosts that cannot", sandbox.Requested{Resources: sandbox.Resources{MemoryMiB: 64}, Demanded: memory}, hosts[1:], "", ""},
	} {
		v := place(&tt.req, origin{}, tt.hosts)
		if tt.host == "" {
			if v.Refused == nil || kind.Kind(v.Refused.Kind) != kind.Unimplemented || !strings.Contains(v.Refused.Reason, "memory") {
				t.Errorf("%s: %+v, want a refusal that names the limit", tt.name, v)
			}
			continue
		}
		if v.Host == nil || v.Host.Host != tt.host || v.Driver != tt.driver {
			t.Errorf("%s: %+v, want host %s and driver %s", tt.name, v, tt.host, tt.driver)
		}
	}
}
