package hosttune

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Values that the services of a production host run with.
const (
	Nice     = -10  // nice value: the services run before the sandboxes
	OOMScore = -500 // oom_score_adj: the kernel ends sandboxes before the services

	// CPUWeight is the weight of the services' group where the kernel divides the CPU between
	// groups first, as with systemd: a sandbox without a limit has 200.
	CPUWeight = 10_000
)

// Names of settings that are not sysctls.
const (
	niceName      = "nice"
	autogroupName = "autogroup"
	oomName       = "oom_score_adj"
	weightName    = "cpu.weight"
)

// Sysctl is a kernel limit and its minimum value for a production host.
type Sysctl struct {
	Name string // name for sysctl(8)
	Want uint64
	Why  string
}

// Sysctls returns the kernel limits that the sandboxes and the host share. On a small
// machine, eight sandboxes of 4096 processes, or three of 1024 terminals, exhaust the
// default limits.
func Sysctls() []Sysctl {
	return []Sysctl{
		{"kernel.pid_max", 4 << 20, "process ids that all sandboxes and the host share"}, // the kernel's maximum
		{"kernel.threads-max", 4 << 20, "threads that all sandboxes and the host share"},
		{"kernel.pty.max", 1 << 20, "terminals that all sandboxes and the host share"}, // likewise
		{"fs.file-max", 1 << 62, "open files that all sandboxes and the host share"},
		// Half of amd64's area for modules, the default of newer kernels. The rest is left
		// to root.
		{"net.core.bpf_jit_limit", 504 << 20, "memory for the system call filters of all sandboxes"},
	}
}

// Setting is a setting of this machine or of a service's process.
type Setting struct {
	Name string
	Now  string // current value
	Want string // recommended value
	Why  string
	OK   bool
}

// Report returns the settings below root (normally "/") that this kernel has, and those of
// the service pid if it is above 0.
func Report(root string, pid int) []Setting {
	var all []Setting
	for _, s := range Sysctls() {
		now, err := s.read(root)
		if err != nil {
			continue // not on this kernel
		}
		all = append(all, Setting{
			Name: s.Name, Now: strconv.FormatUint(now, 10), Want: strconv.FormatUint(s.Want, 10), Why: s.Why, OK: now >= s.Want,
		})
	}
	return append(append(all, service(pid)...), groupWeight(root, pid)...)
}

// groupWeight returns the weight of the top-level group of a service in the unified hierarchy, if
// the service is in one and the CPU is divided between those.
func groupWeight(root string, pid int) []Setting {
	raw, err := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil // no service, or it has ended
	}
	for line := range strings.Lines(string(raw)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		top, _, _ := strings.Cut(path, "/")
		if !ok || top == "" {
			continue
		}
		now, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", top, "cpu.weight"))
		weight, nerr := strconv.Atoi(strings.TrimSpace(string(now)))
		if err != nil || nerr != nil {
			continue
		}
		return []Setting{{
			Name: weightName + " of " + top, Now: strconv.Itoa(weight), Want: strconv.Itoa(CPUWeight), OK: weight >= CPUWeight,
			Why: "the kernel divides the CPU between this group and those of the sandboxes before it compares nice values",
		}}
	}
	return nil
}

func (s *Sysctl) path(root string) string {
	return filepath.Join(root, "proc/sys", strings.ReplaceAll(s.Name, ".", "/"))
}

func (s *Sysctl) read(root string) (uint64, error) {
	raw, err := os.ReadFile(s.path(root))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
}

// Change is a setting that [Apply] wrote, or could not write.
type Change struct {
	Name, From, To string
	Err            error
}

// String returns the change as a line for the operator.
func (c Change) String() string {
	if c.Err != nil {
		return fmt.Sprintf("%s stays %s: %v", c.Name, c.From, c.Err)
	}
	return fmt.Sprintf("%s: %s -> %s", c.Name, c.From, c.To)
}

// Apply raises limits below root that are too low, and sets the priority of a service for
// this process unless the operator has set another one. It returns the changes, including
// failed ones.
func Apply(root string) []Change {
	return append(raise(root), prioritize()...)
}

func raise(root string) []Change {
	var all []Change
	for _, s := range Sysctls() {
		now, err := s.read(root)
		if err != nil || now >= s.Want {
			continue
		}
		want := strconv.FormatUint(s.Want, 10)
		err = os.WriteFile(s.path(root), []byte(want), 0o644)
		all = append(all, Change{s.Name, strconv.FormatUint(now, 10), want, reason(err)})
	}
	return all
}

// reason returns the cause of an error without the path.
func reason(err error) error {
	if path, ok := err.(*fs.PathError); ok { //nolint:errorlint // os.WriteFile does not wrap it
		return path.Err
	}
	return err
}
