package hosttune

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// machine creates a directory with the settings of a small machine: some too low, some
// sufficient, and without kernel.pty.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, was := range map[string]string{"kernel/pid_max": "32768\n", "net/core/bpf_jit_limit": "264241152\n", "fs/file-max": "9223372036854775807\n"} {
		path := filepath.Join(root, "proc/sys", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(was), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRaise(t *testing.T) {
	root := machine(t)
	var got []string
	for _, c := range raise(root) {
		got = append(got, c.String())
	}
	if want := "kernel.pid_max: 32768 -> 4194304; net.core.bpf_jit_limit: 264241152 -> 528482304"; strings.Join(got, "; ") != want {
		t.Errorf("changes %q, want %q", got, want)
	}
	for name, want := range map[string]string{"kernel/pid_max": "4194304", "net/core/bpf_jit_limit": "528482304", "fs/file-max": "9223372036854775807"} {
		raw, err := os.ReadFile(filepath.Join(root, "proc/sys", name))
		if got := strings.TrimSpace(string(raw)); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "proc/sys/kernel/pty")); err == nil {
		t.Error("a setting that the kernel does not have was made")
	}
	if again := raise(root); len(again) > 0 {
		t.Errorf("the second Apply changed %v", again)
	}
}

func TestReport(t *testing.T) {
	want := []Setting{
		{Name: "kernel.pid_max", Now: "32768", Want: "4194304"},
		{Name: "fs.file-max", Now: "9223372036854775807", Want: "4611686018427387904", OK: true},
		{Name: "net.core.bpf_jit_limit", Now: "264241152", Want: "528482304"},
	}
	got := Report(machine(t), 0)
	if len(got) != len(want) {
		t.Fatalf("reports %v, want %v", got, want)
	}
	for i, s := range got {
		if s.Why == "" {
			t.Errorf("%s has no reason", s.Name)
		}
		if s.Why = ""; s != want[i] {
			t.Errorf("reports %+v, want %+v", s, want[i])
		}
	}
}

// A change that the kernel rejects is reported with its reason.
func TestRejectedChange(t *testing.T) {
	err := reason(&os.PathError{Op: "open", Path: "/proc/sys/kernel/pid_max", Err: os.ErrPermission})
	c := Change{Name: "kernel.pid_max", From: "32768", To: "4194304", Err: err}
	if got, want := c.String(), "kernel.pid_max stays 32768: permission denied"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
}

// The files in deploy/ set the same values as --tune-host.
func TestDeployFilesSetTheSame(t *testing.T) {
	got := assignments(t, "../../deploy/sysctl.d/90-millrace.conf")
	for _, s := range Sysctls() {
		if want := strconv.FormatUint(s.Want, 10); got[s.Name] != want {
			t.Errorf("the sysctl file sets %s to %q, want %s", s.Name, got[s.Name], want)
		}
		delete(got, s.Name)
	}
	if len(got) > 0 {
		t.Errorf("the sysctl file sets more: %v", got)
	}
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("units %v, %v", units, err)
	}
	for _, path := range units {
		unit := assignments(t, path)
		if unit["Nice"] != strconv.Itoa(Nice) || unit["OOMScoreAdjust"] != strconv.Itoa(OOMScore) {
			t.Errorf("%s sets Nice %s and OOMScoreAdjust %s, want %d and %d", path, unit["Nice"], unit["OOMScoreAdjust"], Nice, OOMScore)
		}
		slice := assignments(t, filepath.Join(filepath.Dir(path), unit["Slice"]))
		if slice["CPUWeight"] != strconv.Itoa(CPUWeight) {
			t.Errorf("the slice %q of %s sets CPUWeight %q, want %d", unit["Slice"], path, slice["CPUWeight"], CPUWeight)
		}
	}
}

// The weight of the services' group is read where the kernel has it.
func TestReportOfTheWeightOfAGroup(t *testing.T) {
	for _, tt := range []struct {
		name, cgroup, weight string
		want                 []Setting
	}{
		{"in a group of other services", "0::/system.slice/millrace-hostd.service\n", "100\n", []Setting{{Name: "cpu.weight of system.slice", Now: "100", Want: "10000"}}},
		{"in the slice", "1:name=systemd:/x\n0::/millrace.slice/millrace-up.service\n", "10000\n", []Setting{{Name: "cpu.weight of millrace.slice", Now: "10000", Want: "10000", OK: true}}},
		{"in the root", "0::/\n", "", nil},
		{"without the controller", "0::/init.scope\n", "", nil},
		{"version 1", "3:cpu:/system.slice\n", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(path, text string) {
				path = filepath.Join(root, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			write("proc/7/cgroup", tt.cgroup)
			if tt.weight != "" {
				write("sys/fs/cgroup/"+strings.TrimPrefix(tt.want[0].Name, "cpu.weight of ")+"/cpu.weight", tt.weight)
			}
			got := groupWeight(root, 7)
			for i := range got {
				got[i].Why = ""
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("reports %+v, want %+v", got, tt.want)
			}
		})
	}
}

// assignments returns the NAME=VALUE lines of a file.
func assignments(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := make(map[string]string)
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, ok := strings.Cut(s.Text(), "=")
		if ok && !strings.HasPrefix(name, "#") {
			all[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return all
}
