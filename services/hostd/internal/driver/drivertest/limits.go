//go:build linux

package drivertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

func (s *suite) testMemoryLimit(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.MemoryLimit {
			t.Skipf("no memory limit: %v", caps.Notes)
		}
		b := s.create(t, func(sp *driver.Spec) { sp.MemoryMiB, sp.Cgroup = 128, true })
		if caps.OOMEndsSandbox {
			exhaustMemory(t, b)
			return
		}
		if got := send(t, b.Instance, request{OOM: true}).Out; !strings.Contains(got, "oom_kill 0\n") {
			t.Errorf("before: %q", got)
		}
		// dd reads everything at once.
		got := b.sh(t, `sleep 1000 >/dev/null 2>&1 & (dd if=/dev/zero of=/dev/null bs=300M count=1; echo "dd: $?") 2>&1; kill -0 $! && echo the neighbor runs`)
		if caps.Isolation == "machine" && strings.Contains(got, "dd: 1\nthe neighbor runs") {
			return // its kernel refuses what exceeds its memory
		}
		if !strings.Contains(got, "dd: 137") || !strings.Contains(got, "the neighbor runs") {
			t.Errorf("300 MB in 128 MiB: %.200q", got)
		}
		if got := send(t, b.Instance, request{OOM: true}).Out; !strings.Contains(got, "oom_kill 1\n") {
			t.Errorf("after: %q", got)
		}
	}
}

// exhaustMemory uses up the memory of an instance that then ends as a whole.
func exhaustMemory(t *testing.T, b *instance) {
	t.Helper()
	r, err := trySend(t.Context(), b.Instance, request{Args: []string{"sh", "-c", "head -c 300m /dev/zero | tail | wc -c"}, UID: -1})
	if err == nil {
		t.Errorf("300 MB fit into 128 MiB: %q", r.Out)
	}
	awaitDone(t, "an instance out of memory", b.Instance)
}

func (s *suite) testProcessLimit(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.PidsLimit {
			t.Skipf("no limit of processes: %v", caps.Notes)
		}
		const most = 64
		b := s.create(t, func(sp *driver.Spec) { sp.PIDs = most })
		got := b.shAs(t, 1000, "exec 2>/dev/null; i=0; while [ $i -lt 300 ]; do setsid sleep 1000 >/dev/null & i=$((i+1)); done; echo all 300")
		if strings.Contains(got, "all 300") {
			t.Error("300 forks succeeded")
		}
		if n := statsOf(t, b.Instance).Processes; (n > most || n < most/4) && caps.Isolation != "machine" { // whose processes are invisible to the host
			t.Errorf("%d processes, want at most %d and not many fewer", n, most)
		}
		// The shim responds, though it cannot start anything.
		if got := send(t, b.Instance, request{Call: "descriptors"}).Out; got == "" {
			t.Error("no response")
		}
	}
}

func (s *suite) testCPULimit(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.CPULimit {
			t.Skipf("no CPU limit: %v", caps.Notes)
		}
		b := s.create(t, func(sp *driver.Spec) { sp.CPUMilli = 300 })
		b.sh(t, "for i in 1 2; do setsid sh -c 'while :; do :; done' >/dev/null 2>&1 & done")
		before, start := statsOf(t, b.Instance).CPU, time.Now()
		for time.Since(start) < time.Second {
			b.sh(t, "true") // the limit applies to these, too
		}
		took := time.Since(start)
		share := float64(statsOf(t, b.Instance).CPU-before) / float64(took)
		if share > 0.45 { // allows for one or two periods of the quota
			t.Errorf("%.2f CPUs, want 0.3", share)
		}
	}
}

// testDeprioritize: a deprioritized instance still runs, and afterwards has its previous weight.
func (s *suite) testDeprioritize(t *testing.T) {
	b := s.create(t, func(sp *driver.Spec) { sp.CPUMilli = 300 })
	b.sh(t, "true") // it has started
	inst, ok := b.Instance.(driver.Deprioritizer)
	if !ok {
		t.Skip("the driver cannot deprioritize")
	}
	before, err := inst.CPUTime()
	if err == nil {
		err = inst.SetDeprioritized(true)
	}
	if kind.Is(err, kind.Unimplemented) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.sh(t, "true") // more may take long where other processes take all CPUs
	after, err := inst.CPUTime()
	if err != nil || after <= before {
		t.Errorf("%v used, then %v: %v", before, after, err)
	}
	for range 2 {
		if err := inst.SetDeprioritized(false); err != nil {
			t.Error(err)
		}
	}
	weights := map[string]string{"cpu.shares": "307", "cpu.weight": "30"} // for 0.3 CPUs
	for _, dir := range readState(t, b.spec).Cgroups {
		for file, want := range weights {
			if got, err := os.ReadFile(filepath.Join(dir, file)); err == nil && strings.TrimSpace(string(got)) != want {
				t.Errorf("%s of %s: %s, want %s", file, dir, got, want)
			}
		}
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := inst.SetDeprioritized(true); !kind.Is(err, kind.Unavailable) {
		t.Errorf("after the end of the instance: %v", err)
	}
}

// testDiskLimit: one large file and many small ones end at the limit, and the instance
// continues; where a driver cannot limit the total, it limits at least the size of each file.
func (s *suite) testDiskLimit(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		const most = 16 // MiB
		b := s.create(t, func(sp *driver.Spec) { sp.DiskMiB = most })
		got := b.sh(t, "cd $HOME; head -c 40m /dev/zero > one 2>/dev/null; stat -c %s one")
		if n := parseInt(t, got); n > most<<20 {
			t.Errorf("one file has %d bytes, want at most %d MiB", n, most)
		}
		if !caps.DiskLimit {
			return
		}
		got = b.sh(t, `exec 2>/dev/null; cd $HOME; rm one; mkdir many; i=0; while [ $i -lt 50000 ] && true > many/$i; do i=$((i+1)); done; echo $i; rm -r many`)
		if n := parseInt(t, got); n < 100 || n >= 50000 {
			t.Errorf("%d files", n)
		}
		b.sh(t, `exec 2>/dev/null; for i in 1 2 3; do for d in /tmp /usr/local /etc $HOME; do head -c 3m /dev/zero > $d/$i; done; done`)
		if st := statsOf(t, b.Instance); st.DiskBytes > most<<20 || st.DiskBytes < most<<19 {
			t.Errorf("%d bytes are used, want nearly %d MiB", st.DiskBytes, most)
		}
		if got := b.sh(t, "rm /tmp/1 /usr/local/1 && echo again > /tmp/x && cat /tmp/x"); got != "again" {
			t.Errorf("after some was removed: %q", got)
		}
	}
}

// testDiskSize measures the disk as programs do that check for free space.
func (s *suite) testDiskSize(t *testing.T) {
	b := s.create(t, nil)
	var most uint64 // KiB
	for _, dir := range []string{"/", b.spec.Dir} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Fatal(err)
		}
		most = max(most, fs.Blocks*uint64(fs.Bsize)>>10)
	}
	got := b.sh(t, `df -Pk / | { read head; read name blocks rest; echo $blocks; }`)
	if n := parseInt(t, got); n < 1 || uint64(n) > most {
		t.Errorf("it has %d KiB, the host %d", n, most)
	}
}

func (s *suite) testFileLimit(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		b := s.create(t, func(sp *driver.Spec) { sp.OpenFiles = 256 })
		got := b.sh(t, "ulimit -n; ulimit -Hn; ulimit -n 1024 2>/dev/null && echo more")
		if caps.Isolation == "machine" { // whose root may set any limits
			got = strings.TrimSuffix(got, "\nmore")
		}
		if got != "256\n256" {
			t.Errorf("got %q, want 256 and no more", got)
		}
	}
}
