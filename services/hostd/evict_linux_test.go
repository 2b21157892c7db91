package hostd

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
)

// Who fills the host's disk is ended, and says so; who is beside him goes on.
func TestWhoFillsTheDiskIsEnded(t *testing.T) {
	for name, tt := range map[string]struct{ disk, fill string }{
		"bytes": {"size=256m", "head -c 300000000 /dev/zero > fill"},
		"files": {"nr_inodes=100k", "(mkdir many; cd many; i=0; while [ $i -lt 200000 ]; do : > $i; i=$((i+1)); done)"},
	} {
		t.Run(name, func(t *testing.T) { testFull(t, tt.disk, tt.fill) })
	}
}

func testFull(t *testing.T, disk, fill string) {
	r := newRig(t)
	small, err := os.MkdirTemp("", "hostd")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", small, "tmpfs", 0, disk); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		r.kill()
		r.clear()
		unix.Unmount(small, unix.MNT_DETACH) //nolint:errcheck // best effort
		os.Remove(small)                     //nolint:errcheck // best effort
	})
	r.cfg.DataDir = small
	r.begin()
	r.awaitLease(0)
	beside, hog := r.sandbox(), r.sandbox()
	filler := r.start(hog, sh(fill+"; sleep 600"))
	if exit := r.whole(filler).end(); exit == nil || exit.Signal != int32(unix.SIGKILL) && exit.Message != errNoDisk.Error() {
		t.Errorf("its process ended as %s", describe(exit)) // the shim may still have told how
	}
	if s := r.awaitPhase(hog, sandbox.PhaseLost); s.Cause != errNoDisk.Error() {
		t.Errorf("the record says %+v", s)
	}
	if exit := r.whole(r.start(beside, sh("head -c 10000000 /dev/zero > file"))).end(); describe(exit) != "exited 0" {
		t.Errorf("a neighbour's process that writes ended as %s", describe(exit))
	}
	if d := room(small); d.free < d.total/2 || d.freeFiles < d.files/2 {
		t.Errorf("after it: %+v", d)
	}
}

func TestHogOf(t *testing.T) {
	a, b, c := &box{id: "a"}, &box{id: "b"}, &box{id: "c"}
	for _, tt := range []struct {
		all  []holding
		want *box
	}{
		{nil, nil},
		{[]holding{{a, 99, false}, {b, 98, false}}, nil},
		{[]holding{{a, 100, false}, {b, 101, false}, {c, 99, false}}, b},
		{[]holding{{a, 100, false}, {b, 1000, true}}, a},
		{[]holding{{a, 99, false}, {b, 1000, true}, {c, 2000, true}}, c},
	} {
		if got, _ := hogOf(tt.all, 100); got != tt.want {
			t.Errorf("%v: %v", tt.all, got)
		}
	}
}
