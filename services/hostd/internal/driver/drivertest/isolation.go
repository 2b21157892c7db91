//go:build linux

package drivertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// RunIsolation runs the tests for drivers that isolate, besides Run. The shim of these
// tests has the most privileges: it is the sandbox's root where there is one. An instance
// with a kernel of its own may do anything to that kernel.
func RunIsolation(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	s, caps := probed(t, newDriver)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *instance)
	}{
		{"files of the host are invisible", hiddenFiles},
		{"there are no devices", devices},
		{"the host's settings cannot be changed", readOnly},
		{"no core is dumped or passed to a program of the host", cores},
		{"other architectures' calls kill the caller", otherCalls},
		{"the shim is out of reach", shimOutOfReach},
	} {
		if !s.own {
			t.Run(tt.name, func(t *testing.T) { tt.run(t, s.create(t, nil)) })
		}
	}
	for _, sudo := range []bool{false, true} {
		if !s.own {
			t.Run(fmt.Sprintf("no privileges can be gained, sudo %t", sudo), func(t *testing.T) {
				privileges(t, s.create(t, func(sp *driver.Spec) { sp.Sudo = sudo }))
			})
		}
	}
	if !s.machine {
		t.Run("sudo grants root inside and nothing more", func(t *testing.T) { sudoRights(t, s.create(t, nil)) })
	}
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *instance)
	}{
		{"system calls are refused", refusedCalls},
		{"harmless calls work", harmlessCalls},
		{"processes of the host are invisible", hiddenProcesses},
		{"secrets of the host are unreadable", secrets},
		{"it has its own host name", hostname},
		{"the loopback is the only interface", network},
		{"there is a user with a home", users},
		{"the usual directories are writable", writable},
		{"terminals work", terminals},
		{"tools of the host run", tools},
		{"a fork bomb ends with the sandbox", forkBomb},
		{"a deep tree is removed", deepTree},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, s.create(t, nil)) })
	}
	t.Run("an instance made from the files of another is as after a reboot", s.testReboot(caps))
	if s.machine {
		t.Run("the machine has only a disk and a port", func(t *testing.T) { hardware(t, s.create(t, nil)) })
	}
}

// hardware: each device of a virtual machine adds to the attack surface of its emulator. It
// has two bridges, which every board has, and two devices.
func hardware(t *testing.T, b *instance) {
	const bridge, isa, disk, port = "0x060000", "0x060100", "0x010000", "0x078000"
	if got := b.sh(t, "cat /sys/bus/pci/devices/*/class | sort"); got != strings.Join([]string{disk, bridge, isa, port}, "\n") {
		t.Errorf("classes of devices: %q", got)
	}
	if got := b.sh(t, "ls /sys/block /sys/class/net; ls /dev/vport* /dev/vsock /dev/kvm /dev/fb0 /dev/input 2>/dev/null"); strings.Join(strings.Fields(got), " ") != "/dev/vport1p1 /sys/block: vda /sys/class/net: lo" &&
		strings.Join(strings.Fields(got), " ") != "/sys/block: vda /sys/class/net: lo /dev/vport1p1" {
		t.Errorf("devices: %q", got)
	}
	if got := b.sh(t, "echo x 2>/dev/null > /dev/vda && echo written"); got != "" {
		t.Error("the shared disk is writable")
	}
}

func refusedCalls(t *testing.T, b *instance) {
	eachUser(t, func(t *testing.T, uid int) {
		for name := range forbiddenCalls() {
			if got := send(t, b.Instance, request{Call: name, UID: uid}).Out; got == "" && !b.harmless(name, uid) {
				t.Errorf("%s: allowed", name)
			}
		}
	})
}

// harmless reports whether a call by uid affects only the instance's own kernel.
func (b *instance) harmless(call string, uid int) bool {
	switch call {
	case "process_vm_readv", "process_vm_writev", "clone user", "syslog", "socket uevent", "io_setup", "socket mptcp", "socket sctp", "TCP_ULP", "SO_ATTACH_FILTER", "prlimit of pid 1":
		return b.own
	case "kcmp", "move_pages", "socket audit":
		return b.machine // any Linux permits that to users
	case "mount", "umount", "fsopen", "open_tree", "unshare mount", "unshare net", "unshare cgroup", "fanotify_init", "userfaultfd",
		"mknod device", "acct", "settimeofday", "vhangup", "sethostname", "setdomainname", "kexec_load", "socket packet", "socket raw inet", "socket xdp":
		return b.machine && uid < 0 // because its root is root of that kernel
	}
	return false
}

func harmlessCalls(t *testing.T, b *instance) {
	for name := range allowedCalls() {
		if got := send(t, b.Instance, request{Call: name}).Out; got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func hiddenProcesses(t *testing.T, b *instance) {
	list, most := "cd /proc && echo [0-9]*", 3 // the shim, sh, perhaps one more
	if b.machine {                             // without the kernel's threads, which are children of 2, and including this pipe's processes
		list, most = "cd /proc && cat [0-9]*/stat 2>/dev/null | awk '$1 != 2 && $4 != 2 { print $1 }'", 5
	}
	pids := strings.Fields(b.sh(t, list))
	if len(pids) > most {
		t.Errorf("processes %v", pids)
	}
	own := strconv.Itoa(os.Getpid())
	if got := b.sh(t, "kill -0 "+own+" && echo reached"); strings.Contains(got, "reached") && !strings.Contains(strings.Join(pids, " "), own) {
		t.Errorf("signal to the host's process %s: %q", own, got)
	}
}

func hiddenFiles(t *testing.T, b *instance) {
	for _, path := range []string{b.spec.Dir, filepath.Dir(b.spec.Dir), "/boot/.", "/sys/kernel", "/root/.ssh", "/home/" + os.Getenv("SUDO_USER") + "/.",
		"/var/lib/dpkg", "/etc/ssh", "/etc/ssl/private", "/etc/sudoers", "/etc/crontab", "/.dockerenv"} {
		if path == "/home//." {
			continue
		}
		if got := b.sh(t, "ls -d '"+path+"' 2>/dev/null"); got != "" {
			t.Errorf("%s is visible", path)
		}
	}
	if got := b.sh(t, "cat /proc/self/mountinfo"); strings.Contains(got, b.spec.Dir) || regexp.MustCompile(` /boot[/ ]`).MatchString(got) || strings.Contains(got, "millrace") {
		t.Errorf("mounts of the host: %s", got)
	}
	top := b.sh(t, "ls -A / /home /root /tmp /var/tmp /run/user/1000")
	for _, e := range []string{"/", "/home", "/root", "/tmp"} {
		if !strings.Contains(top, e+":") {
			t.Errorf("%s is missing: %s", e, top)
		}
	}
	if got := b.sh(t, "ls -A /home"); got != "user" {
		t.Errorf("/home: %q", got)
	}
	if got := b.sh(t, "ls /tmp /root"); strings.Trim(got, "/rotmp:\n") != "" {
		t.Errorf("/tmp and /root: %q", got)
	}
}

func secrets(t *testing.T, b *instance) {
	for _, path := range []string{"/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/proc/1/root/etc/shadow", "/proc/self/root/../etc/shadow"} {
		if got := b.sh(t, "cat "+path+" 2>/dev/null"); got != "" {
			t.Errorf("%s can be read", path)
		}
	}
	if os.Geteuid() == 0 && !b.unveiled {
		for _, path := range PlantSecrets(t) {
			if got := b.sh(t, "cat "+path+" 2>/dev/null"); got != "" {
				t.Errorf("%s can be read", path)
			}
		}
	}
	if got := b.sh(t, `find /usr -xdev -type f ! -perm -004 -size +0 -exec sh -c 'head -c1 "$1" 2>/dev/null | grep -q . && echo "$1"' _ {} \; 2>/dev/null | head -3`); got != "" {
		t.Errorf("readable without permission: %s", got)
	}
	if got := b.sh(t, "cat /proc/1/environ /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c '^GO\\|^SSH_\\|TOKEN'"); got != "0" {
		t.Errorf("variables of the host: %s", got)
	}
}

// InOverlays reports whether a directory is on an overlay; the kernel limits how many can be stacked.
func InOverlays(t *testing.T, dir string) bool {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// PlantSecrets creates files below the host's /usr/local that only root may read: one by its
// own mode, one by that of its directory. It returns none if that is read-only.
func PlantSecrets(t *testing.T) (paths []string) {
	t.Helper()
	dir, err := os.MkdirTemp("/usr/local/lib", "millrace-test-")
	if err != nil {
		t.Log(err)
		return nil
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, shut := filepath.Join(dir, "own"), filepath.Join(dir, "shut", "f")
	modes := map[string]os.FileMode{own: 0o600, shut: 0o644}
	paths = []string{own, shut}
	for _, path := range paths {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("secret"), modes[path])); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return paths
}

func devices(t *testing.T, b *instance) {
	got := strings.Fields(b.sh(t, "ls /dev"))
	want := "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
	if strings.Join(got, " ") != want {
		t.Errorf("/dev has %v, want %s", got, want)
	}
	if got := b.sh(t, "mknod /tmp/disk b 254 0 2>&1 || mknod /tmp/mem c 1 1 2>&1; ls /tmp"); strings.Count(got, "not permitted") != 2 || strings.HasSuffix(got, "disk") || strings.HasSuffix(got, "mem") {
		t.Errorf("mknod: %q", got)
	}
	if got := b.sh(t, "head -c 4 /dev/zero | od -An -tx1; echo x > /dev/null && head -c 8 /dev/urandom | wc -c"); got != " 00 00 00 00\n8" {
		t.Errorf("devices: %q", got)
	}
}

func readOnly(t *testing.T, b *instance) {
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
		"/proc/sysrq-trigger", "/proc/sys/net/ipv4/ip_forward", "/proc/pressure/cpu"} {
		if got := b.sh(t, "echo some 500000 2000000 2>/dev/null > "+path+" && echo written"); strings.Contains(got, "written") && path != "/proc/sysrq-trigger" {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got := b.sh(t, "cat /proc/kcore /proc/kmsg /proc/keys /proc/kallsyms 2>/dev/null | wc -c"); got != "0" {
		t.Errorf("%s bytes of kernel memory or keys", got)
	}
	if got := b.sh(t, "echo x 2>/dev/null >> /usr/bin/env && echo written; ls /sys/fs/cgroup 2>/dev/null"); got != "" {
		t.Errorf("got %q", got)
	}
}

func privileges(t *testing.T, b *instance) {
	status := b.sh(t, "cat /proc/self/status")
	never := "NoNewPrivs:\t1"
	if b.spec.Sudo && os.Geteuid() == 0 {
		never = "NoNewPrivs:\t0"
	}
	for _, want := range []string{never, "Seccomp:\t2", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000"} {
		if !strings.Contains(status, want) {
			t.Errorf("%s is missing in\n%s", want, status)
		}
	}
	var kept uint64
	for _, c := range nsinit.Kept() {
		kept |= 1 << c
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		_, rest, _ := strings.Cut(status, set+":\t")
		word, _, _ := strings.Cut(rest, "\n")
		bits, err := strconv.ParseUint(word, 16, 64)
		if err != nil || bits&^kept != 0 {
			t.Errorf("%s is %s (%v)", set, word, err)
		}
	}
	// A set-uid program of any owner gains nothing, except sudo.
	b.sh(t, "cp /bin/sh /tmp/s && chmod 4755 /tmp/s")
	if got := b.shAs(t, 1000, "/tmp/s -p -c 'id -u'"); got != "1000" {
		t.Errorf("set-uid: %q", got)
	}
}

func cores(t *testing.T, b *instance) {
	eachUser(t, func(t *testing.T, uid int) {
		got := b.shAs(t, uid, "grep core /proc/self/limits; ulimit -Hc unlimited 2>/dev/null; cd /tmp && sh -c 'kill -SEGV $$'; ls /tmp | grep core")
		if f := strings.Fields(got); len(f) < 6 || f[4] != "1" || f[5] != "1" || strings.HasSuffix(got, "core") {
			t.Errorf("got %q, want limits of 1", got)
		}
	})
}

// otherCalls: a filter could be bypassed by another architecture's call numbers.
func otherCalls(t *testing.T, b *instance) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only one architecture here")
	}
	for name, code := range map[string][]byte{
		"getpid by int 0x80": {0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 5},
	} {
		var text strings.Builder
		for _, c := range elfProgram(code, 62) {
			fmt.Fprintf(&text, `\%03o`, c)
		}
		r := send(t, b.Instance, request{Args: []string{"sh", "-c", "printf '" + text.String() + "' > /tmp/p && chmod 755 /tmp/p && sh -c 'exec /tmp/p'"}, UID: 1000})
		if r.Code == 0 || r.Code == 126 || r.Code == 127 {
			t.Errorf("%s: exit code %d %q, want a signal", name, r.Code, r.Out)
		}
	}
}

func shimOutOfReach(t *testing.T, b *instance) {
	for _, f := range []string{"mem", "environ", "maps", "fd/3", "exe", "cwd", "root", "auxv"} {
		if got := b.sh(t, "(cat /proc/1/"+f+" || ls /proc/1/"+f+"/ ) 2>/dev/null | head -c 20"); got != "" {
			t.Errorf("/proc/1/%s: %q", f, got)
		}
	}
	// pid 1 ignores signals from inside that it has no handler for.
	if got := b.sh(t, "kill -9 1; kill -STOP 1; echo alive"); !strings.Contains(got, "alive") {
		t.Errorf("got %q", got)
	}
}

func hostname(t *testing.T, b *instance) {
	if got := b.sh(t, "hostname; cat /etc/hostname /proc/sys/kernel/hostname"); got != strings.Repeat(string(b.spec.ID)+"\n", 2)+string(b.spec.ID) {
		t.Errorf("got %q", got)
	}
}

func network(t *testing.T, b *instance) {
	got := b.sh(t, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l")
	if got != "lo\n0" {
		t.Errorf("interfaces and routes: %q", got)
	}
	// No packet leaves: there is no route, and the kernel reports that at once.
	if got := send(t, b.Instance, request{Call: "no route"}).Out; got != "" {
		t.Error(got)
	}
	if got := send(t, b.Instance, request{Call: "loopback"}).Out; got != "" {
		t.Errorf("loopback: %s", got)
	}
}

func users(t *testing.T, b *instance) {
	shell := "/bin/bash"
	if b.machine { // where the host's is invisible
		shell = "/bin/sh"
	}
	if got := b.shAs(t, 1000, "id -u; id -un; grep ^user: /etc/passwd; cd ~user && pwd && stat -c %U . && touch file"); got != "1000\nuser\nuser:*:1000:1000:user:/home/user:"+shell+"\n/home/user\nuser" {
		t.Errorf("user: %q", got)
	}
	if b.sh(t, "id -u") != "0" {
		t.Log("the sandbox has no root")
		return
	}
	if got := b.sh(t, "id -un; grep -c ^root: /etc/passwd; stat -c %U /home/user/ /root"); got != "root\n1\nuser\nroot" {
		t.Errorf("root: %q", got)
	}
	if got := b.shAs(t, 1000, "ls /root 2>&1; echo x 2>/dev/null > /etc/hosts || echo refused"); !strings.Contains(got, "ermission denied") || !strings.Contains(got, "refused") {
		t.Errorf("the user has root's permissions: %q", got)
	}
}

func writable(t *testing.T, b *instance) {
	for _, dir := range []string{"/tmp", "/var/tmp", "/home/user", "/dev/shm", "/usr/local/bin", "/opt", "/etc", "/var/lib", "/run", "/root"} {
		if got := b.sh(t, "echo x > "+dir+"/probe && cat "+dir+"/probe && rm "+dir+"/probe"); got != "x" {
			t.Errorf("%s: %q", dir, got)
		}
	}
	if got := b.sh(t, "cd /tmp && mkdir a && mv a b && ln -s b c && touch b/d && ln b/d b/e && rm -r b c && sync && echo fine"); got != "fine" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat("/usr/local/bin/probe"); err == nil {
		t.Error("the host's /usr was modified")
	}
}

func terminals(t *testing.T, b *instance) {
	if b.sh(t, "command -v script; :") == "" {
		t.Skip("no script(1) in the sandbox")
	}
	got := b.shAs(t, 1000, "script -qec 'tty; stty size' /dev/null 2>&1 </dev/null")
	if !strings.Contains(got, "/dev/pts/0") {
		t.Errorf("got %q", got)
	}
}

func tools(t *testing.T, b *instance) {
	if b.machine {
		t.Skip("the host's files are not visible")
	}
	for _, script := range []string{
		"bash -lc 'echo $((6*7)) | grep 42'",
		"! command -v python3 >/dev/null || python3 -c 'import ssl, json, subprocess; print(subprocess.check_output([\"echo\", \"42\"]).decode())'",
		"! command -v node >/dev/null || node -e 'console.log(42)'",
		"! command -v git >/dev/null || (cd && git init -q repo && cd repo && git status --short)",
		"! command -v perl >/dev/null || perl -e 'print 42'",
	} {
		if r := send(t, b.Instance, request{Args: []string{"sh", "-c", script}, UID: 1000}); r.Code != 0 {
			t.Errorf("%s: %d, %s", script, r.Code, r.Out)
		}
	}
}

func forkBomb(t *testing.T, b *instance) {
	b.shAs(t, 1000, "bomb() { bomb | bomb & }; (ulimit -u 300; bomb) >/dev/null 2>&1 &")
}

func deepTree(t *testing.T, b *instance) {
	if got := b.shAs(t, 1000, `cd /tmp && perl -e 'for (1..5000) { mkdir "d"; chdir "d" or die } print "deep"; chmod 0, ".."'`); got != "deep" {
		t.Skipf("no deep tree: %q", got)
	}
}
