//go:build linux

package drivertest

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// attacks returns what code in a sandbox may try against its host and its
// neighbors. Each is made as the shim, which has the most privileges, and
// as the user, and is judged by its effect on the host: a driver with a kernel
// of its own may let a call succeed that another one refuses.
func (s *suite) attacks() []attack {
	return []attack{
		{"read and write the host's files", s.hostFiles},
		{"change the host's settings", s.hostSettings},
		{"kill the host's processes", s.hostProcesses},
		{"reach servers on the host's loopback", s.hostServers},
		{"reach a neighbor", s.neighbor},
		{"use up what users share", s.userLimits},
		{"outlive the host's processes when its memory is used up", s.oomScores},
		{"find secrets in environments", s.environments},
		{"use descriptors that hostd left open", s.descriptors},
		{"break out of the root by chroot", s.chrootBreakout},
		{"kill pid 1", s.killFirst},
		{"leave a set-uid program on the host", s.setuidOnHost},
		{"redirect hostd by links while it measures", s.measureRace},
		{"redirect hostd by links while it copies", s.copyLinks},
	}
}

type attack struct {
	name string
	run  func(*testing.T)
}

// eachUser runs f as the shim and as the user.
func eachUser(t *testing.T, f func(t *testing.T, uid int)) {
	t.Helper()
	for _, uid := range []int{-1, 1000} {
		t.Run(map[int]string{-1: "as the shim", 1000: "as the user"}[uid], func(t *testing.T) { f(t, uid) })
	}
}

const canary = "canary-of-the-host"

// plantCanary leaves a file on the host: where hostd's journal is, or in a directory
// that all users may enter.
func plantCanary(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, canary)
	if err := os.WriteFile(path, []byte(canary), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	return path
}

func (s *suite) hostFiles(t *testing.T) {
	b := s.create(t, nil)
	open, err := os.MkdirTemp("/tmp", "millrace-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plantCanary(t, b.root), plantCanary(t, b.spec.Dir), plantCanary(t, open)} {
		eachUser(t, func(t *testing.T, uid int) {
			up := strings.Repeat("../", 40)
			var script strings.Builder
			for _, spelling := range []string{path, "/proc/1/root" + path, "/proc/self/root" + path, "/proc/self/cwd/" + up + path,
				"/proc/1/cwd/" + up + path, up + path, "/dev/fd/3/" + up + path, "/proc/1/cwd/../" + canary, "/proc/1/cwd/../../" + canary} {
				fmt.Fprintf(&script, "f='%s'; (echo overwritten > $f); rm -f $f; cat $f; ln -sf $f link && cat link; ln $f hard && cat hard\n", spelling)
			}
			if got := b.shAs(t, uid, "cd /tmp; exec 2>/dev/null; "+script.String()); strings.Contains(got, canary) {
				t.Errorf("%s was read", path)
			}
			if got := b.shAs(t, uid, "find / -xdev -path /usr -prune -o -name '"+canary+"' -print 2>/dev/null"); strings.Contains(got, canary) {
				t.Errorf("found: %s", got)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != canary {
				t.Errorf("%s on the host: %q, %v", path, got, err)
			}
		})
	}
}

// settings returns settings of the host, each with a harmless new value.
func settings() map[string]string {
	return map[string]string{
		"/proc/sys/kernel/core_pattern":        "|/tmp/mine",
		"/proc/sys/kernel/hostname":            "mine",
		"/proc/sys/kernel/domainname":          "mine",
		"/proc/sys/kernel/modprobe":            "/tmp/mine",
		"/proc/sys/kernel/printk_ratelimit":    "6",
		"/proc/sys/kernel/pid_max":             "4194303",
		"/proc/sys/kernel/shmmni":              "4097",
		"/proc/sys/fs/file-max":                "9223372036854775806",
		"/proc/sys/vm/swappiness":              "61",
		"/proc/sys/net/ipv4/ip_forward":        "1",
		"/proc/sys/net/ipv4/tcp_syn_retries":   "5",
		"/proc/sys/net/core/somaxconn":         "4095",
		"/proc/sys/user/max_user_namespaces":   "12345",
		"/sys/kernel/uevent_helper":            "/tmp/mine",
		"/sys/kernel/mm/ksm/run":               "0",
		"/sys/module/printk/parameters/time":   "N",
		"/proc/irq/default_smp_affinity":       "1",
		"/proc/1/oom_score_adj":                "-999",
		"/sys/fs/cgroup/memory/release_agent":  "/tmp/mine",
		"/sys/fs/cgroup/pids/release_agent":    "/tmp/mine",
		"/sys/fs/cgroup/systemd/release_agent": "/tmp/mine",
	}
}

func (s *suite) hostSettings(t *testing.T) {
	b := s.create(t, nil)
	before := map[string]string{}
	for path := range settings() {
		if text, err := os.ReadFile(path); err == nil {
			before[path] = string(text)
		}
	}
	eachUser(t, func(t *testing.T, uid int) {
		for path, value := range settings() {
			b.shAs(t, uid, "echo '"+value+"' 2>/dev/null > "+path)
		}
		for path, was := range before {
			// Other processes change settings, too.
			if is, err := os.ReadFile(path); err != nil || string(is) != was && strings.TrimSpace(string(is)) == settings()[path] {
				t.Errorf("%s: %q (%v), want %q", path, is, err, was)
				os.WriteFile(path, []byte(was), 0)
			}
		}
	})
}

func (s *suite) hostProcesses(t *testing.T) {
	b := s.create(t, nil)
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()
	pid := strconv.Itoa(victim.Process.Pid)
	own, shim := strconv.Itoa(os.Getpid()), strconv.Itoa(shimPID(t, b.spec))
	eachUser(t, func(t *testing.T, uid int) {
		// Each in a session of its own: kill -1 would end the shell itself.
		b.shAs(t, uid, "for p in "+pid+" -"+pid+" "+own+" "+shim+"; do kill -9 $p; kill -STOP $p; done 2>/dev/null; setsid sh -c 'kill -9 -1' 2>/dev/null")
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, victim.Process.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo != 0 {
			t.Fatalf("the host's process %s was reached: signal %d, %v", pid, info.Signo, err)
		}
		if got := b.shAs(t, uid, "cat /proc/"+pid+"/cmdline /proc/"+own+"/cmdline 2>/dev/null | tr '\\0' ' '"); strings.Contains(got, "sleep 1000") || strings.Contains(got, "-test.") {
			t.Errorf("command lines of the host: %q", got)
		}
	})
}

func (s *suite) hostServers(t *testing.T) {
	b := s.create(t, nil)
	var addresses [][]string
	for _, l := range [][2]string{{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"unix", "@millrace-" + string(b.spec.ID)}, {"unix", filepath.Join(b.root, "s")}} {
		listener, err := net.Listen(l[0], l[1])
		if err != nil {
			t.Logf("listen on %v: %v", l, err)
			continue
		}
		defer listener.Close()
		go func() {
			if c, err := listener.Accept(); err == nil {
				t.Errorf("the sandbox reached %v", listener.Addr())
				c.Close()
			}
		}()
		addresses = append(addresses, []string{l[0], listener.Addr().String()})
	}
	addresses = append(addresses, []string{"unix", filepath.Join(b.spec.Dir, "shim.sock")})
	for _, to := range addresses {
		if got := send(t, b.Instance, request{Call: "dial", Args: to}).Out; got == "" {
			t.Errorf("dial %v succeeds", to)
		}
	}
	eachUser(t, func(t *testing.T, uid int) {
		if got := b.shAs(t, uid, "cat /proc/net/unix 2>/dev/null | grep -c 'shim.sock\\|@millrace-'"); got != "0" && got != "" {
			t.Errorf("%s sockets of the host in /proc/net/unix", got)
		}
	})
}

func (s *suite) neighbor(t *testing.T) {
	a, b := s.create(t, nil), s.create(t, nil)
	const name, port = "@of-the-neighbor", "127.0.0.1:7777"
	for _, l := range [][]string{{"unix", name}, {"tcp", port}} {
		if got := send(t, b.Instance, request{Call: "listen", Args: l}).Out; got != "" {
			t.Fatalf("listen on %v: %s", l, got)
		}
		if got := send(t, b.Instance, request{Call: "dial", Args: l}).Out; got != "" {
			t.Fatalf("the neighbor itself cannot dial %v: %s", l, got)
		}
		if got := send(t, a.Instance, request{Call: "dial", Args: l}).Out; got == "" {
			t.Errorf("dial %v of the neighbor succeeds", l)
		}
	}
	for _, where := range []string{"/tmp", "/dev/shm", "$HOME", "/run", "/var/tmp"} {
		b.sh(t, "echo "+canary+" > "+where+"/"+canary+"; chmod 666 "+where+"/"+canary)
	}
	b.sh(t, "setsid sleep 1000 "+canary+" 2>/dev/null >&2 & setsid sh -c 'sleep 1000; echo "+canary+"' >/dev/null 2>&1 &")
	shim := strconv.Itoa(shimPID(t, b.spec))
	eachUser(t, func(t *testing.T, uid int) {
		if got := a.shAs(t, uid, "find / -xdev -path /usr -prune -o -name '"+canary+"' -print 2>/dev/null; ls -d /dev/shm/* /tmp/* 2>/dev/null; cat "+b.spec.Dir+"/* 2>/dev/null"); strings.Contains(got, canary) {
			t.Errorf("files of the neighbor: %s", got)
		}
		if got := a.shAs(t, uid, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -v grep"); strings.Contains(got, canary) || strings.Contains(got, string(b.spec.ID)) {
			t.Errorf("processes of the neighbor: %s", got)
		}
		a.shAs(t, uid, "kill -9 "+shim+"; kill -STOP "+shim+"; setsid sh -c 'kill -9 -1'")
		if got := b.sh(t, "cat /tmp/"+canary); got != canary {
			t.Errorf("output of the neighbor: %q", got)
		}
	})
}

// oomScores: the kernel kills the sandbox's processes first, regardless of the score that they set.
func (s *suite) oomScores(t *testing.T) {
	b := s.create(t, nil)
	const lower = "for n in -1000 0 199; do echo $n > /proc/self/oom_score_adj; done 2>/dev/null; setsid sleep 1000 "
	eachUser(t, func(t *testing.T, uid int) {
		b.shAs(t, uid, lower+string(b.spec.ID)+" >/dev/null 2>&1 &")
	})
	pids := []int{shimPID(t, b.spec)}
	if mayLower() { // otherwise those inside may restore the score
		pids = append(pids, pidsWith(b.spec.ID)...)
	}
	for _, pid := range pids {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"))
		if score, _ := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && score < driver.OOMScore {
			t.Errorf("process %d of the sandbox has score %d, want %d", pid, score, driver.OOMScore)
		}
	}
}

// mayLower reports whether this process may lower its score, and so, when it sets the score
// of others, prevents them from lowering it (CAP_SYS_RESOURCE).
func mayLower() bool {
	const path = "/proc/self/oom_score_adj"
	was, err := os.ReadFile(path)
	return err == nil && os.WriteFile(path, []byte("-1000"), 0) == nil && os.WriteFile(path, was, 0) == nil
}

func (s *suite) environments(t *testing.T) {
	t.Setenv("MILLRACE_CANARY", canary)
	b := s.create(t, nil)
	eachUser(t, func(t *testing.T, uid int) {
		if got := b.shAs(t, uid, "env; cat /proc/*/environ /proc/*/cmdline /proc/self/mountinfo /proc/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rs 'canary-of' /run /etc /tmp /home"); strings.Contains(got, canary) {
			t.Errorf("got %q", got)
		}
	})
}

// descriptors: the shim has the standard ones, its listener, its cgroup's two, and
// those that it opened itself; no others of hostd's. In a virtual machine it has two
// directories of that machine, too.
func (s *suite) descriptors(t *testing.T) {
	b := s.create(t, func(sp *driver.Spec) { sp.Cgroup = true })
	got := send(t, b.Instance, request{Call: "descriptors"}).Out
	for line := range strings.Lines(got) {
		fd, target, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(fd)
		if err != nil {
			t.Fatalf("descriptors: %q", got)
		}
		own := n <= driver.ForksFd || strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "anon_inode:") || strings.HasSuffix(target, "/fd")
		if s.machine && (n == 6 && target == "/rw/upper" || n == 7 && target == "/sys/fs/cgroup") {
			continue
		}
		if !own || strings.Contains(target, "memfd") || n > driver.ForksFd && strings.HasPrefix(target, "pipe:") {
			t.Errorf("descriptor %d is %s", n, target)
		}
	}
}

func (s *suite) chrootBreakout(t *testing.T) {
	b := s.create(t, nil)
	path := plantCanary(t, b.root)
	got := b.sh(t, `command -v perl >/dev/null || exit 0; perl -e 'mkdir "/tmp/c"; opendir(my $d, "/"); chroot("/tmp/c") or print "refused "; chdir($d);
		chdir("..") for 1..99; chroot("."); print -e $ARGV[0] ? "out" : "inside", " ", join(",", grep { /^(home|tmp)$/ } glob("*"))' '`+path+"'")
	if got == "" {
		t.Skip("no perl in the sandbox")
	}
	if strings.Contains(got, "out") || !strings.Contains(got, "inside") {
		t.Errorf("got %q", got)
	}
}

func (s *suite) killFirst(t *testing.T) {
	b := s.create(t, nil)
	caps, err := b.d.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eachUser(t, func(t *testing.T, uid int) {
		if uid < 0 && caps.RootCanKillShim {
			t.Skip("the sandbox's root can end the sandbox")
		}
		b.shAs(t, uid, "for n in $(seq 1 64); do kill -$n 1; /bin/kill -q 1 -s $n 1; done 2>/dev/null")
		if got := b.shAs(t, uid, "echo alive"); got != "alive" {
			t.Errorf("got %q", got)
		}
	})
}

// setuidOnHost: other users of the host must not reach a program that makes them
// root there.
func (s *suite) setuidOnHost(t *testing.T) {
	b := s.create(t, nil)
	b.sh(t, "cd $HOME && cp /bin/sh shell && chmod 6755 shell && cp shell /tmp/ && chmod 6755 /tmp/shell")
	err := filepath.WalkDir(b.spec.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an overlay's work directory is inaccessible
		}
		var st unix.Stat_t
		if unix.Lstat(p, &st) == nil && st.Uid == 0 && st.Mode&unix.S_IFREG != 0 && st.Mode&unix.S_ISUID != 0 {
			t.Errorf("%s is set-uid root", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(b.spec.Dir, &st); err != nil || st.Mode&0o077 != 0 {
		t.Errorf("the sandbox's directory has mode %o, %v", st.Mode, err)
	}
}

// measureRace: a directory becomes a link to the host's root and back again as
// fast as possible while its size is measured.
func (s *suite) measureRace(t *testing.T) {
	b := s.create(t, nil)
	b.sh(t, `cd $HOME; mkdir d; ln -s / l; echo x > d/file
		setsid sh -c 'while :; do mv d e; mv l d; mv d l; mv e d; done' >/dev/null 2>&1 &`)
	for range 100 {
		if st := statsOf(t, b.Instance); st.DiskBytes > 64<<20 {
			t.Fatalf("%d bytes: more than exist inside", st.DiskBytes)
		}
	}
}

func (s *suite) copyLinks(t *testing.T) {
	b := s.create(t, nil)
	path := plantCanary(t, b.root)
	b.sh(t, "cd $HOME; ln -s "+path+" file; ln -s "+b.root+" dir; ln -s / root; ln -s /proc/self/fd/3 fd; mkdir d; ln -s ../../../../../../../.. d/up")
	dir := snapshotDir(t)
	if err := b.Snapshot(t.Context(), dir, false); err != nil {
		t.Skipf("no snapshots: %v", err)
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(p)
		text = bytes.ReplaceAll(text, []byte(path), nil) // the target of a link is not a secret
		if bytes.Contains(text, []byte(canary)) && !slices.Contains(strings.Split(p, "/"), "namespace.json") {
			t.Errorf("%s has the contents of a file of the host", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// callWithArgs is a call that the shim makes with arguments.
func callWithArgs(name string, args []string) string {
	switch name {
	case "dial":
		c, err := net.Dial(args[0], args[1])
		if err != nil {
			return err.Error()
		}
		c.Close()
		return ""
	case "listen":
		l, err := net.Listen(args[0], args[1])
		if err != nil {
			return err.Error()
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		return ""
	}
	return openDescriptors()
}

func openDescriptors() string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			fmt.Fprintln(&b, e.Name(), target)
		}
	}
	return b.String()
}
