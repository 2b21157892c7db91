//go:build linux

package jail

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
)

// The test binary is also every program of FreeBSD's that the driver runs, selected by
// the name that it is called by. It records its arguments, fails where the test requests
// it, and does as much of the work as Linux permits: a jail does not isolate, but
// its processes really run.
func TestMain(m *testing.M) {
	if dir := os.Getenv(fakeDir); dir != "" {
		if name := filepath.Base(os.Args[0]); DefaultTools()[name] != "" {
			f := fake{dir}
			os.Exit(f.play(name, os.Args[1:]))
		}
	}
	drivertest.Main(m)
}

const fakeDir = "JAIL_TEST_DIR"

// fake is the state of the machine: a directory with data sets (sets), snapshots' contents
// (kept), jails (jails) and rules (rules), each a file.
type fake struct{ dir string }

// fakeTools puts the programs first on PATH.
func fakeTools(t *testing.T) fake {
	t.Helper()
	dir := os.Getenv(fakeDir)
	if dir != "" { // a process that a test started
		return fake{dir}
	}
	dir = t.TempDir()
	f := fake{dir}
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{"bin", "sets", "kept", "jails", "rules"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	f.sysctl(t, "kern.features.vimage", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range DefaultTools() {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range []string{"tank/tpl", "tank/run", "tank/tpl/base", "tank/tpl/base@v1", "tank/tpl/base@v2"} {
		f.put("sets", set, "")
	}
	t.Setenv(fakeDir, dir)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return f
}

func (f fake) path(kind, name string) string {
	return filepath.Join(f.dir, kind, strings.ReplaceAll(name, "/", "%"))
}

func (f fake) put(kind, name, value string) {
	if err := os.WriteFile(f.path(kind, name), []byte(value), 0o666); err != nil {
		panic(err)
	}
}

func (f fake) get(kind, name string) (string, bool) {
	b, err := os.ReadFile(f.path(kind, name))
	return string(b), err == nil
}

// all returns the sorted names of a kind that begin with prefix.
func (f fake) all(kind, prefix string) []string {
	entries, _ := os.ReadDir(filepath.Join(f.dir, kind))
	var out []string
	for _, e := range entries {
		if name := strings.ReplaceAll(e.Name(), "%", "/"); strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out
}

// calls returns the command lines so far.
func (f fake) calls() [][]string {
	b, _ := os.ReadFile(filepath.Join(f.dir, "log"))
	var out [][]string
	for line := range strings.Lines(string(b)) {
		var call []string
		if json.Unmarshal([]byte(line), &call) == nil {
			out = append(out, call)
		}
	}
	return out
}

func (f fake) play(name string, args []string) int {
	lock, err := os.OpenFile(filepath.Join(f.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return 70
	}
	call := append([]string{name}, args...)
	line, _ := json.Marshal(call)
	log, err := os.OpenFile(filepath.Join(f.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return 70
	}
	fmt.Fprintf(log, "%s\n", line)
	log.Close()
	if fail, _ := os.ReadFile(filepath.Join(f.dir, "fail")); len(fail) > 0 && strings.HasPrefix(strings.Join(call, " "), string(fail)) {
		fmt.Fprintln(os.Stderr, "set to fail")
		return 1
	}
	if err := f.work(name, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// sysctl sets the value that sysctl(8) prints for a name.
func (f fake) sysctl(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(value), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (f fake) work(name string, args []string) error {
	last := args[len(args)-1]
	switch name + " " + args[0] {
	case "sysctl -n":
		value, _ := os.ReadFile(filepath.Join(f.dir, last)) // a name without a value prints nothing
		fmt.Println(string(value))
	case "zfs list":
		return f.list(args, last)
	case "zfs clone", "zfs receive":
		root := strings.TrimPrefix(args[2], "mountpoint=")
		f.put("sets", last, root)
		if err := os.MkdirAll(filepath.Join(root, "home/user"), 0o777); err != nil || args[0] == "clone" {
			return err
		}
		return unix.Exec("/bin/tar", []string{"tar", "-xf-", "-C", root}, os.Environ())
	case "zfs snapshot":
		f.put("sets", last, "")
		return f.keep(last)
	case "zfs send":
		return unix.Exec("/bin/cat", []string{"cat", f.path("kept", last)}, os.Environ())
	case "zfs destroy":
		root, _ := f.get("sets", last)
		if root != "" {
			if err := os.RemoveAll(root); err != nil {
				return err
			}
		}
		os.Remove(f.path("kept", last)) // if it is a snapshot
		return os.Remove(f.path("sets", last))
	case "jail -c":
		f.put("jails", strings.TrimPrefix(args[1], "name="), strings.TrimPrefix(args[2], "path="))
	case "jail -r":
		return f.removeJail(last)
	case "jls -j":
		if _, ok := f.get("jails", args[1]); !ok {
			return fmt.Errorf("jail %q not found", args[1])
		}
		fmt.Println(7)
	case "jexec -l":
		return f.exec(args)
	case "rctl -a":
		f.put("rules", last, "")
	case "rctl -r":
		for _, rule := range f.all("rules", last+":") {
			os.Remove(f.path("rules", rule))
		}
	case "rctl -u":
		fmt.Print("cputime=3\nmemoryuse=4096\nmaxproc=2\n")
	case "umount -f":
	default:
		if name == "rctl" {
			fmt.Println(strings.Join(f.all("rules", last+":"), "\n"))
			return nil
		}
		return fmt.Errorf("no such use of %s: %v", name, args)
	}
	return nil
}

func (f fake) list(args []string, set string) error {
	if slices.Contains(args, "used") {
		root, _ := f.get("sets", set)
		processes, err := f.in(root)
		if err != nil {
			return err
		}
		n, _, err := new(usage.Disk).Of(context.Background(), root, 0, processes...)
		fmt.Println(n)
		return err
	}
	if _, ok := f.get("sets", set); !ok {
		return fmt.Errorf("dataset %q does not exist", set)
	}
	if slices.Contains(args, "snapshot") {
		fmt.Println(strings.Join(f.all("sets", set+"@"), "\n"))
		return nil
	}
	fmt.Println(set)
	return nil
}

// exec executes the program in the jail. Names of files are as on the host if
// the file exists in the jail's root.
func (f fake) exec(args []string) error {
	const fixed = 4 // -l -U root NAME
	root, ok := f.get("jails", args[fixed-1])
	if !ok {
		return fmt.Errorf("jail %q not found", args[fixed-1])
	}
	born, err := live.StartTime(os.Getpid())
	if err != nil {
		return err
	}
	f.put("jails", args[fixed-1], fmt.Sprintf("%s\n%d %d", root, os.Getpid(), born))
	argv, err := limited(slices.Clone(args[fixed:]))
	if err != nil {
		return err
	}
	for i, a := range argv {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			key, value = "", a
		} else {
			key += "="
		}
		if _, err := os.Stat(root + value); err == nil && strings.HasPrefix(value, "/") {
			argv[i] = key + root + value
		}
	}
	return unix.Exec(argv[0], argv, nil)
}

// limited applies limits(1) and returns the rest of the command line.
func limited(argv []string) ([]string, error) {
	if argv[0] != "/usr/bin/limits" {
		return argv, nil
	}
	argv = argv[2:] // limits -B
	for ; strings.HasPrefix(argv[0], "-"); argv = argv[2:] {
		what, unit := unix.RLIMIT_NOFILE, uint64(1)
		if argv[0] == "-f" {
			what, unit = unix.RLIMIT_FSIZE, 1<<20
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(argv[1], "m"), 10, 64)
		if err != nil {
			return nil, err
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return nil, err
		}
		most := min(n*unit, now.Max) // raising it needs privileges on Linux
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return nil, err
		}
	}
	return argv, nil
}

// removeJail kills all descendants of a jail's first process, if that still is
// the same process: its pid may have been reused.
func (f fake) removeJail(name string) error {
	value, ok := f.get("jails", name)
	if !ok {
		return fmt.Errorf("jail %q not found", name)
	}
	for pid := first(value); pid > 0; pid = first(value) {
		all, err := live.Processes()
		if err != nil {
			return err
		}
		below := live.Descendants(all, pid)
		for _, p := range below {
			unix.Kill(p, unix.SIGKILL)
		}
		if len(below) == 0 {
			unix.Kill(pid, unix.SIGKILL)
			break
		}
	}
	return os.Remove(f.path("jails", name))
}

// first returns the first process of a jail; 0 if there was none, or it has ended.
func first(jail string) int {
	_, text, _ := strings.Cut(jail, "\n")
	var pid int
	var born uint64
	fmt.Sscan(text, &pid, &born)
	if now, err := live.StartTime(pid); pid == 0 || err != nil || now != born {
		return 0
	}
	return pid
}

// in returns the processes of the jails with that root.
func (f fake) in(root string) ([]int, error) {
	all, err := live.Processes()
	var out []int
	for _, name := range f.all("jails", "") {
		jail, _ := f.get("jails", name)
		if pid := first(jail); pid > 0 && strings.HasPrefix(jail, root+"\n") {
			out = append(append(out, pid), live.Descendants(all, pid)...)
		}
	}
	return out, err
}

// keep copies the contents of a snapshot while no process in a jail runs, since ZFS
// snapshots are atomic.
func (f fake) keep(snapshot string) error {
	all, err := live.Processes()
	if err != nil {
		return err
	}
	for _, name := range f.all("jails", "") {
		jail, _ := f.get("jails", name)
		pid := first(jail)
		if pid == 0 {
			continue
		}
		for _, p := range append(live.Descendants(all, pid), pid) {
			unix.Kill(p, unix.SIGSTOP)
			defer unix.Kill(p, unix.SIGCONT)
		}
	}
	set, _, _ := strings.Cut(snapshot, "@")
	root, _ := f.get("sets", set)
	return exec.Command("/bin/tar", "-cf", f.path("kept", snapshot), "-C", root, "--exclude=./.millrace", ".").Run()
}
