package hostd

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

const inNetns = "MILLRACE_TEST_HOUSE"

// inOwnNetns runs a test again in a network namespace without connections: a host with
// network interfaces changes its machine's network.
func inOwnNetns(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv(inNetns) != "" {
		return true
	}
	_, err := exec.LookPath("nft")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("requires root and nft")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), inNetns+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	return false
}

func TestSandboxesGetInterfaces(t *testing.T) {
	if !inOwnNetns(t) {
		return
	}
	r := newRigOn(t, "namespace")
	r.cfg.Egress, r.cfg.Network = true, NetworkVeth
	r.beginHere()
	inspect := func(id sandbox.ID) string {
		t.Helper()
		rec := r.whole(r.start(id, sh(`grep -c eth0 /proc/net/dev; cat /etc/resolv.conf; echo "proxy $http_proxy"`)))
		return string(rec.out[process.Stdout])
	}
	open := r.request(sandbox.Requested{Template: "host", AllowInternet: true})
	r.awaitPhase(open, sandbox.PhaseRunning)
	const plugged = "1\nnameserver 8.8.8.8\nproxy http://127.0.0.1:3128\n"
	if got := inspect(open); got != plugged {
		t.Errorf("sandbox with internet access: %q", got)
	}
	listed := r.request(sandbox.Requested{Template: "host", AllowInternet: true, Network: sandbox.Network{Deny: []string{"1.1.1.1"}}})
	r.awaitPhase(listed, sandbox.PhaseRunning)
	if got := inspect(listed); !strings.HasPrefix(got, "0\n") || !strings.HasSuffix(got, "proxy http://127.0.0.1:3128\n") {
		t.Errorf("sandbox with a deny list: %q", got)
	}
	none := r.request(sandbox.Requested{Template: "host"})
	r.awaitPhase(none, sandbox.PhaseRunning)
	if got := inspect(none); !strings.HasPrefix(got, "0\n") {
		t.Errorf("sandbox without network: %q", got)
	}

	// The next run keeps the interface.
	r.kill()
	r.begin()
	if got := inspect(open); got != plugged {
		t.Errorf("in the next run: %q", got)
	}
	r.setNetwork(open, sandbox.Network{Internet: true, Allow: []string{"a.test"}})
	r.awaitChange(func() bool { return strings.HasPrefix(inspect(open), "0\n") }, "the interface was not removed for a list")
	r.setNetwork(open, sandbox.Network{Internet: true})
	r.awaitChange(func() bool { return inspect(open) == plugged }, "the interface was not restored")

	for _, id := range []sandbox.ID{open, listed, none} {
		r.stopSandbox(id)
		r.awaitPhase(id, sandbox.PhaseDestroyed)
	}
	r.kill() // the kernel may not have removed all of the sandboxes yet
	if left := interfaces(t); len(left) > 0 {
		t.Errorf("interfaces left: %v", left)
	}
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("tables left: %s, %v", out, err)
	}
}

// Traffic through an interface is counted across runs of the host and replacements of the
// interface, each byte once, and the record ends with all of it.
func TestInterfacesAreMetered(t *testing.T) {
	if !inOwnNetns(t) {
		return
	}
	r := newRigOn(t, "namespace")
	r.cfg.Egress, r.cfg.Network, r.cfg.meterEvery = true, NetworkVeth, 20*time.Millisecond
	r.beginHere()
	id := r.request(sandbox.Requested{Template: "host", AllowInternet: true})
	r.awaitPhase(id, sandbox.PhaseRunning)
	const packets, packet = 100, 1042 // with the headers of UDP, IP and the frame
	send := func() {
		t.Helper()
		rec := r.whole(r.start(id, process.Spec{Cmd: "bash", Args: []string{"-c", `i=0; while [ $i -lt 100 ]; do head -c 1000 /dev/zero > /dev/udp/8.8.8.8/9 || exit 1; i=$((i+1)); done`}}))
		if got := describe(rec.end()); got != "exited 0" {
			t.Fatalf("%s: %s", got, rec.out[process.Stderr])
		}
	}
	// An interface sends a little of its own, too, such as neighbor discovery.
	const small = packets * packet / 4
	await := func(times uint64) {
		t.Helper()
		s, err := r.view.AwaitSandbox(r.ctx(), id, func(s *sandbox.State) bool { return s.Used.Sent >= times*packets*packet })
		if err != nil || s.Used.Sent > times*packets*packet+small {
			t.Fatalf("%+v, %v; want %d sent and little more", s.Used, err, times*packets*packet)
		}
	}
	send()
	await(1)
	r.kill()
	r.cfg.meterEvery = time.Hour
	r.begin()
	send() // not reported before the sandbox ends
	r.setNetwork(id, sandbox.Network{Internet: true, Allow: []string{"a.test"}})
	r.awaitChange(func() bool { return len(interfaces(t)) == 0 }, "the interface was not removed for a list")
	r.setNetwork(id, sandbox.Network{Internet: true})
	r.awaitChange(func() bool { return len(interfaces(t)) == 1 }, "the interface was not restored")
	send()
	r.stopSandbox(id)
	r.awaitPhase(id, sandbox.PhaseDestroyed)
	await(3)
}

func (r *rig) setNetwork(id sandbox.ID, n sandbox.Network) {
	r.t.Helper()
	if _, err := r.view.ChangeSandbox(r.ctx(), id, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.NetworkSet{Network: n}}, nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// awaitChange waits until done returns true; it checks after every change of the log, of which a
// lease is one each second.
func (r *rig) awaitChange(done func() bool, what string) {
	r.t.Helper()
	changed, stop := r.view.Changes()
	defer stop()
	ctx := r.ctx()
	for !done() {
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatal(what)
		}
	}
}

// interfaces returns the names of the sandboxes' interfaces on this host.
func interfaces(t *testing.T) (names []string) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && strings.HasPrefix(name, "mr") {
			names = append(names, name)
		}
	}
	return names
}

// A run without interfaces removes those of a previous run, which would not be counted or
// filtered.
func TestRunWithoutInterfacesRemovesThem(t *testing.T) {
	if !inOwnNetns(t) {
		return
	}
	r := newRigOn(t, "namespace")
	r.cfg.Egress, r.cfg.Network = true, NetworkVeth
	epoch := r.beginHere()
	id := r.request(sandbox.Requested{Template: "host", AllowInternet: true})
	r.awaitPhase(id, sandbox.PhaseRunning)
	r.awaitChange(func() bool { return len(interfaces(t)) == 1 }, "the sandbox got no interface")
	for name, without := range map[string]func(*Config){
		"the proxy only": func(cfg *Config) { cfg.Network = "" },
		"no network":     func(cfg *Config) { cfg.Egress = false },
	} {
		r.kill()
		with := r.cfg
		without(&r.cfg)
		r.begin()
		epoch = r.awaitLease(epoch)
		if got := interfaces(t); len(got) != 0 {
			t.Errorf("%s: interfaces left: %v", name, got)
		}
		r.kill()
		r.cfg = with
		r.begin()
		epoch = r.awaitLease(epoch)
		r.awaitChange(func() bool { return len(interfaces(t)) == 1 }, "the interface was not restored")
	}
}
