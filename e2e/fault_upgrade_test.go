package e2e_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// protocolFile has the version of the protocol between hostd and shim.
const protocolFile = "services/hostd/internal/wire/doc.go"

// A hostd of another build is killed, and the current one takes over its shims; then that is
// killed, and the other build takes over the shims of both. Processes lose nothing, also on
// terminals. Covers T-127 and T-128.
func TestFaultUpgrade(t *testing.T) {
	t.Parallel()
	other := rig.Changed(t, protocolFile, "MaxText       = 4 << 10", "MaxText       = 5 << 10")
	u := rig.NewUp(t, rig.Options{Binary: other})
	c := newCrowd(t)
	all := counting(t, u, c)
	c.progress(t, 50)
	must(t, u.SwitchBinary(rig.Binary(t)))
	c.progress(t, 50)
	all = append(all, counting(t, u, c)...)
	must(t, u.SwitchBinary(other))
	c.progress(t, 50)
	all = append(all, counting(t, u, c)...)
	c.progress(t, 50) // a terminal whose program has not started would echo the input
	for _, p := range all {
		stopCounter(t, []*rig.API{u.API}, p.box, p.pid, p.stream)
	}
	c.finish(t, counterCode)
	checkPauses(t, c)
}

// A hostd of another protocol version refuses the shims of the previous one: the records of
// their processes end without an exit code, and new sandboxes work.
func TestFaultOtherProtocolVersion(t *testing.T) {
	t.Parallel()
	other := rig.Changed(t, protocolFile, "const Version = 1\n", "const Version = 2\n")
	u := rig.NewUp(t, rig.Options{Binary: other})
	box := u.Create(t).ID
	id, _ := launch(t, u.API, box, counter{every: 10 * time.Millisecond}.spec())
	must(t, u.SwitchBinary(rig.Binary(t)))
	if end := rig.End(t, u.Events(t, id, "follow=1").All(t)); end.ExitCode != nil || end.Cause != "shim_lost" {
		t.Errorf("%s", end.Raw)
	}
	if run := u.StartStream(t, u.Create(t).ID, "exit 3").All(t); run.End == nil {
		t.Error("a new sandbox does not run commands")
	}
}

// counting starts counters in two sandboxes, some of them on terminals, with a crowd as
// readers.
func counting(t *testing.T, u *rig.Up, c *crowd) (all []running) {
	t.Helper()
	for range 2 {
		box := u.Create(t).ID
		for i := range 5 {
			one, spec := running{box: box, stream: "stdin"}, counter{every: 5 * time.Millisecond}.spec()
			if i == 1 {
				one.stream, spec = "pty", counter{every: 5 * time.Millisecond}.terminal()
			}
			one.id, one.pid = launch(t, u.API, box, spec)
			c.watch([]*rig.API{u.API}, box, one.id, 0, "events")
			all = append(all, one)
		}
	}
	return all
}
