//go:build linux

package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

const (
	configFile = "config.json"
	shimInside = "/sys" // mount point of shimDir: a directory that every root has, so that none is created in a template's tree
	coalesce   = "1ms"  // costs a third less for programs that print in pieces of 4 KiB, and for the shim
	userID     = 1000
	home       = "home/user"
	shmMiB     = 64 // without a memory limit; with one, half of it
)

// The parts of an OCI bundle's config.json that are used.
type (
	config struct {
		Version  string            `json:"ociVersion"`
		Process  configProcess     `json:"process"`
		Root     configRoot        `json:"root"`
		Hostname string            `json:"hostname"`
		Mounts   []configMount     `json:"mounts"`
		Linux    configLinux       `json:"linux"`
		Notes    map[string]string `json:"annotations,omitempty"`
	}
	configProcess struct {
		User    struct{ UID, GID uint32 } `json:"user"`
		Args    []string                  `json:"args"`
		Env     []string                  `json:"env"`
		Cwd     string                    `json:"cwd"`
		Caps    map[string][]string       `json:"capabilities"`
		Rlimits []configLimit             `json:"rlimits"`
		OOM     int                       `json:"oomScoreAdj"`
		NoNew   bool                      `json:"noNewPrivileges"`
	}
	configLimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	configRoot struct {
		Path string `json:"path"`
	}
	configMount struct {
		To      string   `json:"destination"`
		Type    string   `json:"type"`
		From    string   `json:"source"`
		Options []string `json:"options,omitempty"`
	}
	configLinux struct {
		Namespaces []configNamespace `json:"namespaces"`
		Cgroup     string            `json:"cgroupsPath,omitempty"` // inside; see pids.go
	}
	configNamespace struct {
		Type string `json:"type"`
	}
)

// seedAnnotation is the annotation with the tar that a root starts with.
const seedAnnotation = "dev.gvisor.tar.rootfs.upper"

// newConfig returns the bundle of a new sandbox, with mounts of memory.
func newConfig(r *runsc, s *driver.Spec, v *namespace.View, root string, memory []configMount) config {
	shm := uint32(shmMiB)
	if s.MemoryMiB > 0 {
		shm = max(1, s.MemoryMiB/2)
	}
	files, most := uint64(s.OpenFiles), s.MaxPIDs(driver.MaxProcesses)
	if files == 0 {
		files = driver.DefaultOpenFiles
	}
	c := config{
		Version: "1.0.2", Hostname: s.HostName(), Root: configRoot{root},
		Process: configProcess{
			Args: append([]string{shimInside + "/" + shimFile}, append(append([]string{}, s.ShimArgs...), "-serial", "0,1", "-coalesce", coalesce)...),
			Env:  v.Env, Cwd: "/", NoNew: !s.Sudo, OOM: driver.OOMScore, Caps: map[string][]string{},
			Rlimits: []configLimit{{"RLIMIT_NOFILE", files, files}, {"RLIMIT_NPROC", uint64(most), userPIDs(most)}, {Type: "RLIMIT_CORE"}},
		},
		Mounts: []configMount{
			{To: "/proc", Type: "proc", From: "proc"},
			{To: "/dev", Type: "tmpfs", From: "tmpfs"},
			{To: "/dev/shm", Type: "tmpfs", From: "tmpfs", Options: []string{"mode=1777", fmt.Sprintf("size=%dm", shm)}},
			{To: shimInside, Type: "cgroup", From: "cgroup", Options: []string{"ro"}}, // hidden by the next mount
			{To: shimInside, Type: "bind", From: r.in(shimDir), Options: []string{"ro"}},
		},
		Linux: configLinux{[]configNamespace{{"pid"}, {"ipc"}, {"uts"}, {"mount"}, {"network"}}, "/" + string(s.ID)},
		Notes: map[string]string{seedAnnotation: r.in(seedFile)},
	}
	c.Mounts = append(c.Mounts, memory...)
	for _, v := range s.Volumes {
		c.Mounts = append(c.Mounts, configMount{To: v.Path, Type: "bind", From: v.Source, Options: []string{"rw"}})
	}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		c.Process.Caps[set] = capNames()
	}
	return c
}

// capNames returns the names of nsinit.Kept.
func capNames() []string {
	names := map[uintptr]string{
		unix.CAP_CHOWN: "CHOWN", unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_FOWNER: "FOWNER", unix.CAP_FSETID: "FSETID",
		unix.CAP_KILL: "KILL", unix.CAP_SETGID: "SETGID", unix.CAP_SETUID: "SETUID", unix.CAP_SETPCAP: "SETPCAP",
		unix.CAP_SETFCAP: "SETFCAP", unix.CAP_NET_BIND_SERVICE: "NET_BIND_SERVICE", unix.CAP_SYS_CHROOT: "SYS_CHROOT",
	}
	var all []string
	for _, c := range nsinit.Kept() {
		if n, ok := names[c]; ok {
			all = append(all, "CAP_"+n)
		}
	}
	return all
}

func (c *config) save(path string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func readConfig(path string) (c config, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	return c, err
}

// restored adapts the bundle of a snapshot to another sandbox: what the processes in it
// can see of it stays as it is.
func (c *config) restored(r *runsc, s *driver.Spec, root string) {
	c.Hostname, c.Root.Path, c.Notes = s.HostName(), root, nil
	for i := range c.Mounts {
		if c.Mounts[i].To == shimInside && c.Mounts[i].Type == "bind" {
			c.Mounts[i].From = r.in(shimDir)
		}
	}
}

// viewArg returns the argument with which millrace-runsc mounts the sandbox's root in the
// directory root, with the layers of a snapshot in it: over what the host template shows,
// or over a template's tree.
func viewArg(s *driver.Spec, v *namespace.View, root string, under *layers.Below) (string, error) {
	links, binds := map[string]string{}, map[string][]string{}
	for _, l := range v.Links {
		links[l.Name] = l.Body
	}
	var host []string
	if s.Root == "" {
		host = append([]string{"usr"}, v.Binds...)
		for _, b := range host {
			binds[b] = append(under.Part(b), "/"+b)
		}
		binds["etc"] = append(under.Part("etc"), v.Etc)
	}
	var over []string
	for name := range binds {
		if slices.ContainsFunc(s.Volumes, func(v driver.Volume) bool { return strings.HasPrefix(v.Path, "/"+name+"/") }) {
			over = append(over, name)
		}
	}
	if !veils(s) {
		host = nil
	}
	below := under.Part("")
	if s.Root != "" {
		below = append(below, s.Root)
	}
	b, err := json.Marshal(struct {
		Root  string
		Dirs  []string
		Links map[string]string
		Binds map[string][]string
		Over  []string
		Host  []string
		Below []string
		Tree  bool
	}{root, []string{"dev", "proc", "sys", "tmp", "run", "root", "home", "mnt", "opt", "srv", "var"}, links, binds, over, host, below, s.Root != ""})
	return "--view=" + string(b), err
}

// veils reports whether a sandbox shows the host's own files with the permissions of
// ordinary users. Root of a user namespace only has no more access to them anyway.
func veils(s *driver.Spec) bool { return s.Root == "" && os.Geteuid() == 0 }
