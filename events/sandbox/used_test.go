package sandbox

import "testing"

func TestCounted(t *testing.T) {
	begin := NetworkUsed{Sent: 100, Received: 200, Link: LinkUsed{Index: 7, Sent: 30, Received: 40}}
	for _, tt := range []struct {
		name string
		now  LinkUsed
		want NetworkUsed
	}{
		{"none", LinkUsed{}, begin},
		{"more of the same", LinkUsed{7, 31, 42}, NetworkUsed{101, 202, LinkUsed{7, 31, 42}}},
		{"the same", LinkUsed{7, 30, 40}, begin},
		{"an older reading", LinkUsed{7, 29, 40}, begin},
		{"the one before", LinkUsed{6, 1000, 1000}, begin},
		{"the next", LinkUsed{8, 5, 6}, NetworkUsed{105, 206, LinkUsed{8, 5, 6}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := begin.Counted(tt.now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	if got, want := (NetworkUsed{Sent: 1}).Counted(LinkUsed{3, 4, 5}), (NetworkUsed{5, 5, LinkUsed{3, 4, 5}}); got != want {
		t.Errorf("the first: %+v, want %+v", got, want)
	}
}
