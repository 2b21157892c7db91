package scheduler

import (
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestPlace(t *testing.T) {
	ns := []string{"namespace"}
	tests := []struct {
		name   string
		driver string
		rooms  []room
		want   string // a host, or empty
		refuse kind.Kind
		wait   bool
	}{
		{name: "no host at all is unavailable", refuse: kind.Unavailable},
		{name: "a host that drains counts for nothing", rooms: []room{{Host: "a", Capacity: 9, Draining: true}}, refuse: kind.Unavailable},
		{name: "a full host is exhausted", rooms: []room{{Host: "a", Capacity: 1, Used: 1}}, refuse: kind.Exhausted},
		{name: "capacity zero is exhausted", rooms: []room{{Host: "a"}}, refuse: kind.Exhausted},
		{name: "a host that lost capacity under its load takes nothing", rooms: []room{{Host: "a", Capacity: 1, Used: 3}}, refuse: kind.Exhausted},
		{name: "the last place is given", rooms: []room{{Host: "a", Capacity: 2, Used: 1}}, want: "a"},
		{name: "the least used part wins, not the least used number", rooms: []room{{Host: "a", Capacity: 4, Used: 2}, {Host: "b", Capacity: 100, Used: 3}}, want: "b"},
		{name: "names decide between equals", rooms: []room{{Host: "b", Capacity: 2}, {Host: "a", Capacity: 2}}, want: "a"},
		{name: "empty hosts of any size are equal", rooms: []room{{Host: "b", Capacity: 1000}, {Host: "a", Capacity: 1}}, want: "a"},
		{name: "a driver asked for by name is found", driver: "gvisor", rooms: []room{{Host: "a", Capacity: 9, Drivers: ns}, {Host: "b", Capacity: 9, Used: 8, Drivers: []string{"namespace", "gvisor"}}}, want: "b"},
		{name: "a level is never lowered", driver: "gvisor", rooms: []room{{Host: "a", Capacity: 9, Drivers: ns}}, refuse: kind.Unavailable},
		{name: "only full hosts have the driver", driver: "gvisor", rooms: []room{{Host: "a", Capacity: 9, Drivers: ns}, {Host: "b", Capacity: 1, Used: 1, Drivers: []string{"gvisor"}}}, refuse: kind.Exhausted},
		{name: "a host in doubt is waited for", rooms: []room{{Host: "a", Capacity: 9, Doubtful: true}}, wait: true},
		{name: "a host in doubt is waited for before a refusal for room", rooms: []room{{Host: "a", Capacity: 9, Doubtful: true}, {Host: "b", Capacity: 1, Used: 1}}, wait: true},
		{name: "a host without doubt is not waited with", rooms: []room{{Host: "a", Capacity: 9, Doubtful: true}, {Host: "b", Capacity: 1}}, want: "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := place(&sandbox.Requested{Driver: tt.driver}, tt.rooms)
			switch {
			case tt.wait:
				if got.Host != nil || got.Refused != nil {
					t.Errorf("place = %+v; want to wait", got)
				}
			case tt.want != "":
				if got.Host == nil || got.Host.Host != tt.want {
					t.Errorf("place = %+v; want host %s", got, tt.want)
				}
			case got.Refused == nil || kind.Kind(got.Refused.Kind) != tt.refuse:
				t.Errorf("place = %+v; want refused as %v", got, tt.refuse)
			}
		})
	}
}

func TestPlaceSpreads(t *testing.T) {
	rooms := []room{{Host: "a", Capacity: 3}, {Host: "b", Capacity: 3}, {Host: "c", Capacity: 3}}
	for range 9 {
		v := place(&sandbox.Requested{}, rooms)
		if v.Host == nil {
			t.Fatalf("refused with room left: %+v", rooms)
		}
		v.Host.Used++
		for _, r := range rooms {
			for _, o := range rooms {
				if r.Used-o.Used > 1 {
					t.Fatalf("uneven: %+v", rooms)
				}
			}
		}
	}
	if v := place(&sandbox.Requested{}, rooms); v.Refused == nil {
		t.Fatalf("tenth sandbox of nine placed on %v", v.Host)
	}
}
