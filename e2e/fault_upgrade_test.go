package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// envOld names a directory with an older millrace, and millrace-shim, such as
// those of commit 9f4be7f, whose shims speak version 1.
const envOld = "MILLRACE_E2E_OLD"

// An older hostd is killed, and one of today goes on with its shims: what runs
// there loses nothing: TORTURE 127, 128.
func TestFaultUpgrade(t *testing.T) {
	dir := os.Getenv(envOld)
	if dir == "" {
		t.Skip("no " + envOld)
	}
	u := rig.NewUp(t, rig.Options{Binary: filepath.Join(dir, "millrace")})
	apis := []*rig.API{u.API}
	c := newCrowd(t)
	var all []running
	for range 2 {
		box := u.Create(t).ID
		for i := range 5 {
			one, spec := running{box: box, stream: "stdin"}, counter{every: 5 * time.Millisecond}.spec()
			if i == 1 {
				one.stream, spec = "pty", counter{every: 5 * time.Millisecond}.terminal()
			}
			one.id, one.pid = launch(t, u.API, box, spec)
			c.watch(apis, box, one.id, 0, "events")
			all = append(all, one)
		}
	}
	c.progress(t, 50)
	must(t, u.Upgrade(t))
	c.progress(t, 50)
	u.Kill9() // the second time both know which version it is
	must(t, u.Restart())
	c.progress(t, 50)
	for _, p := range all {
		tell(t, apis, p.box, p.pid, p.stream)
	}
	c.finish(t, counterCode)
	unnoticed(t, c)
}
