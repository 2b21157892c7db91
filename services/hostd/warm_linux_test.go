package hostd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// describeSandbox prints what a sandbox can find out about how it was created.
const describeSandbox = `hostname; cat /etc/hostname /etc/hosts /proc/sys/kernel/hostname; env | sort; id; ulimit -a
cat /proc/self/uid_map | wc -l; cat /proc/self/mountinfo | cut -d' ' -f5-6 | sort; cat /proc/self/cgroup
grep -E '^(Cap|NoNew|Seccomp|Groups)' /proc/self/status; ls -lan /home/user /etc / | awk '{print $1, $3, $4, $9}'; cat /proc/net/dev | cut -d: -f1; cat /proc/1/oom_score_adj; pwd`

// A sandbox in a warm instance is like any other: the first one of a spec is created for it.
func TestWarmSandboxIsLikeAnyOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root the driver has no warm pool")
	}
	r := newRigOn(t, "namespace")
	r.cfg.Warm = 1
	r.begin()
	r.awaitLease(0)
	req := sandbox.Requested{Template: "base", Resources: sandbox.Resources{PIDs: 77, MemoryMiB: 128}, Defaults: sandbox.Defaults{Env: map[string]string{"A": "b"}}}
	described := func() (sandbox.ID, string) {
		id := r.request(req)
		r.awaitPhase(id, sandbox.PhaseRunning)
		got := r.whole(r.start(id, sh(describeSandbox)))
		return id, string(regexp.MustCompile(string(id)+`|ticks=\d+`).ReplaceAll(got.out[process.Stdout], []byte("SANDBOX")))
	}
	isWarm := func(id sandbox.ID) bool { // then its instance has a name of its own
		_, err := os.Stat(r.cfg.DataDir + "/" + sandboxDir + "/" + string(id))
		return err != nil
	}
	first, want := described()
	if isWarm(first) {
		t.Fatal("the first sandbox is in a warm instance")
	}
	id, got := described()
	for !isWarm(id) { // the pool was not filled yet
		id, got = described()
	}
	if len(got) < 1000 {
		t.Errorf("output %q", got)
	}
	other := strings.Split(want, "\n")
	for n, line := range strings.Split(got, "\n") {
		if n >= len(other) || line != other[n] {
			t.Fatalf("line %d: %q, in other sandboxes %q", n, line, other[min(n, len(other)-1)])
		}
	}
}
