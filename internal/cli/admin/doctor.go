package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
	"github.com/millrace/millrace/internal/hosttune"
	"github.com/millrace/millrace/internal/masterkey"
)

// check is the result of one of doctor's checks.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// health is the report of doctor.
type health struct {
	Version  string                 `json:"version"`
	Go       string                 `json:"go"`
	Platform string                 `json:"platform"`
	Kernel   string                 `json:"kernel"`
	Drivers  []command.DriverReport `json:"drivers"`
	Checks   []check                `json:"checks"`
	Settings []setting              `json:"settings"`
	Hosts    []client.Host          `json:"hosts"`
}

// setting is a kernel or service setting of this machine, and the value that a production
// host should have.
type setting struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Now  string `json:"now"`
	Want string `json:"want"`
	Why  string `json:"why"`
}

func (a *app) settings() []setting {
	all := []setting{}
	for _, s := range hosttune.Report("/", a.servicePID()) {
		all = append(all, setting{Name: s.Name, OK: s.OK, Now: s.Now, Want: s.Want, Why: s.Why})
	}
	return all
}

func (a *app) doctorCommand() *cobra.Command {
	var cluster bool
	var servers string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine and the gateway",
		Long: `Check which drivers work on this machine and why others do not, how it limits
resources, which settings a production host should change, and whether the gateway
and NATS are reachable. The settings are optional for a trial; --tune-host of up
and hostd, or the files in deploy/, set them. It exits with 1 if no driver works.

With --cluster it examines the NATS servers, the streams, the services and the hosts
of an installation instead, says what to do about each problem, and exits with 1 if
there is one. The token of the servers is in MILLRACE_NATS_TOKEN.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := a.JSON()
			if err != nil {
				return err
			}
			if cluster {
				return a.examineCluster(cmd.Context(), cmp.Or(servers, a.Getenv("MILLRACE_NATS"), localNATS), asJSON)
			}
			h := a.examine(cmd.Context())
			if asJSON {
				err = a.WriteJSON(h)
			} else {
				err = a.writeHealth(h)
			}
			if err != nil {
				return err
			}
			for _, d := range h.Drivers {
				if d.OK {
					return nil
				}
			}
			if len(h.Drivers) > 0 {
				return &output.ExitError{Code: 1}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&cluster, "cluster", false, "examine the installation instead of this machine")
	c.Flags().StringVar(&servers, "nats", "", "NATS servers for --cluster, separated by commas (default MILLRACE_NATS or "+localNATS+")")
	return c
}

// probeTimeout bounds the tests of the drivers and each request.
const probeTimeout = 10 * time.Second

func (a *app) examine(ctx context.Context) *health {
	ctx, cancel := context.WithTimeout(ctx, 3*probeTimeout)
	defer cancel()
	h := &health{
		Version: a.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(),
		Drivers: []command.DriverReport{}, Settings: a.settings(), Hosts: []client.Host{},
	}
	if a.Probe != nil {
		h.Drivers = append(h.Drivers, a.Probe(ctx)...)
	}
	h.Checks = append(h.Checks, checkUser(), checkCgroups("/proc/self/mountinfo"), checkUserns("/proc/sys"))
	if a.Confine != nil {
		h.Checks = append(h.Checks, checkConfinement(a.Confine()))
	}
	h.Checks = append(h.Checks, a.checkData(), a.checkMasterKey())
	h.Checks = append(h.Checks, a.checkGateway(ctx, h)...)
	return h
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

func checkUser() check {
	if uid := os.Geteuid(); uid != 0 {
		return check{"user", true, fmt.Sprintf("uid %d: sandboxes run in user namespaces of their own", uid)}
	}
	return check{"user", true, "root"}
}

// checkCgroups reports which version of cgroups is mounted, and where.
func checkCgroups(mountinfo string) check {
	b, err := os.ReadFile(mountinfo)
	if err != nil {
		return check{"cgroups", false, "not supported on this system: sandboxes have no memory and CPU limits"}
	}
	v1, v2 := "", ""
	var controllers []string
	for l := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup2":
			v2 = f[4]
		case "cgroup":
			v1 = f[4]
			controllers = append(controllers, f[4][strings.LastIndexByte(f[4], '/')+1:])
		}
	}
	switch {
	case v2 != "" && v1 == "":
		return check{"cgroups", true, "v2 at " + v2}
	case v1 != "":
		return check{"cgroups", true, "v1: " + strings.Join(controllers, " ")}
	}
	return check{"cgroups", false, "not mounted: sandboxes have no memory and CPU limits"}
}

// checkUserns reports whether the sysctls allow an unprivileged user to create user
// namespaces; the drivers' own tests are authoritative.
func checkUserns(sys string) check {
	read := func(name string) string {
		b, err := os.ReadFile(sys + "/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("user/max_user_namespaces") == "":
		return check{"user namespaces", false, "not supported on this system"}
	case read("user/max_user_namespaces") == "0":
		return check{"user namespaces", false, "disabled: sysctl user.max_user_namespaces is 0"}
	case read("kernel/unprivileged_userns_clone") == "0":
		return check{"user namespaces", false, "only for root: sysctl kernel.unprivileged_userns_clone is 0"}
	case read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return check{"user namespaces", false, "only for root: sysctl kernel.apparmor_restrict_unprivileged_userns is 1"}
	}
	return check{"user namespaces", true, "allowed"}
}

// checkConfinement reports whether sandboxes that use this kernel can confine processes.
func checkConfinement(err error) check {
	if err != nil {
		return check{"confinement", false, err.Error() + ": starts with a sandbox policy are refused"}
	}
	return check{"confinement", true, "landlock and seccomp, with drivers that use this kernel (not gvisor)"}
}

// servicePID returns the id of the process that locks the data directory; 0 if it is
// unlocked.
func (a *app) servicePID() int {
	dir, err := a.DataDir()
	if err != nil {
		return 0
	}
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return 0
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return 0 // left by an earlier process
	}
	var pid int
	fmt.Fscan(f, &pid) //nolint:errcheck // pid stays 0
	return pid
}

func (a *app) checkData() check {
	dir, err := a.DataDir()
	if err != nil {
		return check{"data directory", false, err.Error()}
	}
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return check{"data directory", true, dir + " (not created yet)"}
	}
	free := uint64(at.Bavail) * uint64(at.Bsize)
	return check{"data directory", free > 1<<30, fmt.Sprintf("%s, %d GiB free", dir, free>>30)}
}

// checkMasterKey reports where the master key of this machine's services lies, and whether it is
// outside of the data directory and closed to other users.
func (a *app) checkMasterKey() check {
	const name = "master key"
	if a.Getenv("MILLRACE_MASTER_KEY_COMMAND") != "" {
		return check{name, true, "from a command"}
	}
	k := masterkey.Key{File: a.Getenv("MILLRACE_MASTER_KEY")}
	if k.File == "" {
		k.File = masterkey.DefaultFile(a.Getenv)
	}
	if dir, err := a.DataDir(); err == nil && k.Inside(dir) {
		return check{name, false, k.File + " is in the data directory, whose data it seals: move it"}
	}
	if _, err := os.Stat(k.File); errors.Is(err, fs.ErrNotExist) {
		return check{name, true, k.File + " (not created yet)"}
	}
	if problem := k.Check(); problem != "" {
		return check{name, false, problem}
	}
	return check{name, true, k.File}
}

func (a *app) checkGateway(ctx context.Context, h *health) []check {
	c, err := a.Client()
	if err != nil {
		return []check{{"gateway", false, err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begun := time.Now()
	if err := get(ctx, c, "/livez"); err != nil {
		return []check{{"gateway", false, err.Error()}}
	}
	out := []check{{"gateway", true, fmt.Sprintf("%s answers in %v", c.Base(), time.Since(begun).Round(10*time.Microsecond))}}
	begun = time.Now()
	if err := get(ctx, c, "/readyz"); err != nil {
		return append(out, check{"nats", false, err.Error()})
	}
	out = append(out, check{"nats", true, fmt.Sprintf("reachable from the gateway, round trip %v", time.Since(begun).Round(10*time.Microsecond))})
	h.Hosts, err = c.Hosts(ctx)
	if err != nil {
		return append(out, check{"hosts", false, err.Error()})
	}
	alive := 0
	for _, x := range h.Hosts {
		if x.Alive {
			alive++
		}
	}
	return append(out, check{"hosts", alive > 0, fmt.Sprintf("%d of %d alive", alive, len(h.Hosts))})
}

// get requests a page of which only the status matters.
func get(ctx context.Context, c *client.Client, path string) error {
	resp, err := c.Open(ctx, &client.Request{Method: "GET", Path: path})
	if err != nil {
		return err
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) //nolint:errcheck // so that the connection is reused
	return resp.Body.Close()
}

func (a *app) writeHealth(h *health) error {
	mark := func(ok bool) string {
		if ok {
			return "ok"
		}
		return "NO"
	}
	fmt.Fprintf(a.Out, "millrace %s, %s, %s, %s\n\n", h.Version, h.Go, h.Platform, h.Kernel)
	var rows [][]string
	add := func(name string, ok bool, detail string) {
		for i, part := range strings.Split(detail, "; ") {
			if i == 0 {
				rows = append(rows, []string{name, mark(ok), part})
			} else {
				rows = append(rows, []string{"", "", part})
			}
		}
	}
	for _, d := range h.Drivers {
		add("driver "+d.Name, d.OK, d.Detail)
	}
	for _, c := range h.Checks {
		add(c.Name, c.OK, c.Detail)
	}
	for _, s := range h.Settings {
		rows = append(rows, settingRow(s))
	}
	return a.Table([]string{"WHAT", "", "DETAIL"}, rows)
}

// settingRow marks a setting below the recommendation for production as "low" and not as
// an error, because it does not matter for a trial.
func settingRow(s setting) []string {
	if s.OK {
		return []string{s.Name, "ok", s.Now}
	}
	return []string{s.Name, "low", fmt.Sprintf("%s; a production host should have %s: %s", s.Now, s.Want, s.Why)}
}
