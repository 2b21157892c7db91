//go:build linux

package drivertest

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// TemplatesVariable passes the directory of Templates on to the processes that a
// test starts.
const TemplatesVariable = "DRIVERTEST_TEMPLATES"

// Templates returns one directory for all tests of a process, as a host has one; any user
// may read it.
func Templates(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(TemplatesVariable); dir != "" {
		return dir
	}
	dir, err := os.MkdirTemp("", "millrace-templates-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(TemplatesVariable, dir)
	return dir
}

// RunTemplate runs the tests for drivers that support Spec.Root.
func RunTemplate(t *testing.T, newDriver func(t *testing.T) driver.Driver) {
	s, caps := probed(t, newDriver)
	tree := Tree(t)
	before := describeTree(t, tree)
	for _, tt := range []struct {
		name string
		sudo bool
		run  func(*testing.T, *instance)
	}{
		{"the root is the template's", false, treeIsRoot},
		{"changes stay in the instance", false, treeIsShared(s, tree)},
		{"files have the template's owners", false, treeOwners},
		{"its links do not lead to the host", false, treeLinks},
		{"its set-uid programs gain nothing", false, treeSetuid(1000)},
		{"its set-uid programs work with sudo", true, treeSetuid(0)},
		{"there are devices, terminals and a host name", false, treeDevices},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.run(t, s.create(t, func(sp *driver.Spec) { sp.Template, sp.Root, sp.Sudo = "tree", tree, tt.sudo }))
		})
	}
	t.Run("volumes can be mounted at any path", func(t *testing.T) { treeVolumes(t, s, caps, tree) })
	t.Run("files in the place of a configuration stay visible", func(t *testing.T) { treeConfig(t, s) })
	if after := describeTree(t, tree); after != before {
		t.Errorf("the template has changed:\ngot\n%s\nwant\n%s", after, before)
	}
}

// treeEntry is a file of the tree that the tests use.
type treeEntry struct {
	path, body string
	mode       os.FileMode
	uid        int
}

// Tree returns a minimal template: busybox, a user, and traps.
func Tree(t testing.TB) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox on this machine (Debian: busybox-static)")
	}
	shell, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"", "bin", "etc", "proc", "dev", "sys", "tmp", "run", "root", "usr", "home", "home/user"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []treeEntry{
		{"bin/busybox", string(shell), 0o755, 0},
		{"bin/euid", string(euidProgram()), 0o755 | os.ModeSetuid, 0},
		{"etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", 0o644, 0},
		{"etc/marker", "of the template\n", 0o644, 0},
		{"home/user/mine", "mine\n", 0o600, 1000},
	} {
		path := filepath.Join(root, e.path)
		if err := os.WriteFile(path, []byte(e.body), 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			os.Lchown(path, e.uid, e.uid)
		}
		if err := os.Chmod(path, e.mode); err != nil { // after chown, which clears set-uid
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		os.Lchown(filepath.Join(root, "home/user"), 1000, 1000)
	}
	links := map[string]string{
		"etc/hostname": "/etc/marker", // what a driver writes there must not go through the link
		"etc/hosts":    "../../../../../../etc/marker",
		"etc/out":      "/proc/1/root/etc/marker",
	}
	for _, name := range strings.Fields("sh ls cat id echo touch rm stat hostname test tty grep sleep mkdir env") {
		links["bin/"+name] = "busybox"
	}
	addLibraries(t, root)
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// addLibraries adds the libraries of this program, which is the shim, to the tree, unless
// it is static.
func addLibraries(t testing.TB, root string) {
	t.Helper()
	exe, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	interp := exe.Section(".interp")
	if interp == nil {
		return // it is static
	}
	loader, err := interp.Data()
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps") // the program may not be readable by its path
	if err != nil {
		t.Fatal(err)
	}
	libs := []string{strings.TrimRight(string(loader), "\x00")}
	for word := range strings.FieldsSeq(string(maps)) {
		if strings.HasPrefix(word, "/") && strings.Contains(word, ".so") && !slices.Contains(libs, word) {
			libs = append(libs, word)
		}
	}
	for _, path := range libs {
		lib, err := os.ReadFile(path)
		if err == nil {
			err = os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, path), lib, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// euidProgram returns a program that exits with the lowest byte of its effective uid.
func euidProgram() []byte {
	code, machine := []byte{0xb8, 107, 0, 0, 0, 0x0f, 5, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 5}, uint16(62)
	if runtime.GOARCH == "arm64" {
		code, machine = nil, 183
		for _, op := range []uint32{0xd28015e8, 0xd4000001, 0xd2800ba8, 0xd4000001} {
			code = binary.LittleEndian.AppendUint32(code, op)
		}
	}
	return elfProgram(code, machine)
}

// elfProgram returns a minimal executable with the given code.
func elfProgram(code []byte, machine uint16) []byte {
	const base, head = 0x400000, 64 + 56
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(le.AppendUint16(b, 2), machine)
	b = le.AppendUint64(le.AppendUint32(b, 1), base+head)
	b = le.AppendUint64(le.AppendUint64(b, 64), 0)
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{64, 56, 1, 64, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(le.AppendUint32(b, 1), 5)
	size := uint64(head + len(code))
	for _, n := range []uint64{0, base, base, size, size, 4096} {
		b = le.AppendUint64(b, n)
	}
	return append(b, code...)
}

// describeTree describes all files of a tree.
func describeTree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			b.WriteString(strings.TrimPrefix(p, root) + " " + fi.Mode().String() + " " + fi.ModTime().String() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func treeIsRoot(t *testing.T, b *instance) {
	if got := b.sh(t, "cat /etc/marker"); got != "of the template" {
		t.Errorf("/etc/marker: %q", got)
	}
	if got := b.sh(t, "ls /usr/bin /usr/share /root /home 2>/dev/null"); strings.Join(strings.Fields(got), " ") != "/home: user /root:" {
		t.Errorf("files of the host: %q", got)
	}
	if got := b.sh(t, "cat /proc/self/mountinfo"); strings.Contains(got, filepath.Dir(b.spec.Root)) {
		t.Errorf("the host's path is visible: %s", got)
	}
}

func treeIsShared(s *suite, tree string) func(*testing.T, *instance) {
	return func(t *testing.T, b *instance) {
		other := s.create(t, func(sp *driver.Spec) { sp.Template, sp.Root = "tree", tree })
		if got := b.sh(t, "echo changed > /tmp/x && echo changed > /home/user/new && cat /tmp/x /home/user/new"); got != "changed\nchanged" {
			t.Errorf("write: %q", got)
		}
		if got := other.sh(t, "ls /tmp /home/user; cat /etc/marker"); got != "/home/user:\nmine\n\n/tmp:\nof the template" && got != "/tmp:\n\n/home/user:\nmine\nof the template" {
			t.Errorf("in another instance: %q", got)
		}
	}
}

// treeVolumes: a mount point that the template does not have is created for this instance
// only, and the files around it stay as they are.
func treeVolumes(t *testing.T, s *suite, caps driver.Caps, tree string) {
	if !caps.Volumes {
		t.Skip("the driver does not support volumes here")
	}
	one, two := volume(t), volume(t)
	b := s.create(t, func(sp *driver.Spec) {
		sp.Template, sp.Root = "tree", tree
		sp.Volumes = []driver.Volume{{Source: one, Path: "/home/user/data"}, {Source: two, Path: "/usr/deep/er"}}
	})
	if got := b.shAs(t, 1000, "echo 1 > /home/user/data/f && echo 2 > /usr/deep/er/f && echo 3 > /home/user/new && cat /home/user/mine /home/user/*/f /usr/deep/er/f"); got != "mine\n1\n2" {
		t.Errorf("inside: %q", got)
	}
	for dir, want := range map[string]string{one: "1\n", two: "2\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, "f")); string(got) != want {
			t.Errorf("on the host: %q, %v", got, err)
		}
	}
}

func treeOwners(t *testing.T, b *instance) {
	want := "0 0\n1000 1000"
	if os.Geteuid() != 0 {
		want = "1000 1000\n1000 1000" // there is only one user
	}
	if got := b.sh(t, "stat -c '%u %g' /etc/marker /home/user/mine"); got != want {
		t.Errorf("owners %q, want %q", got, want)
	}
	if got := b.shAs(t, 1000, "cat /home/user/mine"); got != "mine" {
		t.Errorf("user's own file: %q", got)
	}
	if got := b.shAs(t, 1000, "touch /home/user/more && echo ok"); got != "ok" {
		t.Errorf("user's home: %q", got)
	}
}

func treeLinks(t *testing.T, b *instance) {
	if got := b.sh(t, "cat /etc/marker"); got != "of the template" {
		t.Errorf("the driver wrote through a link: %q", got)
	}
	if got := b.sh(t, "cat /etc/out"); strings.Contains(got, "root:") {
		t.Errorf("a link leads to the host: %q", got)
	}
	if got := b.sh(t, "cat /../../../etc/marker"); got != "of the template" {
		t.Errorf("above the root: %q", got)
	}
}

func treeSetuid(want int) func(*testing.T, *instance) {
	return func(t *testing.T, b *instance) {
		if os.Geteuid() != 0 {
			want = 1000 // no other user exists
		}
		if got := send(t, b.Instance, request{Args: []string{"/bin/euid"}, UID: 1000}); got.Code != want&0xff || got.Out != "" {
			t.Errorf("effective uid %d %q, want %d", got.Code, got.Out, want&0xff)
		}
	}
}

func treeDevices(t *testing.T, b *instance) {
	if got := b.sh(t, "echo x > /dev/null && test -c /dev/tty && test -d /dev/pts && test -d /dev/shm && echo ok"); got != "ok" {
		t.Errorf("devices: %q", got)
	}
	if got := b.sh(t, "hostname; cat /etc/hostname"); got != string(b.spec.ID)+"\n"+string(b.spec.ID) {
		t.Errorf("host name: %q", got)
	}
	for name := range forbiddenCalls() {
		if got := send(t, b.Instance, request{Call: name}).Out; got == "" && !b.harmless(name, -1) {
			t.Errorf("%s: allowed", name)
		}
	}
}
