package e2e_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// doctor runs millrace doctor and returns its report on each driver, and their order.
func doctor(t *testing.T, env ...string) (detail map[string]string, ok map[string]bool, order string) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), "doctor", "-o", "json")
	cmd.Env = env
	out, _ := cmd.Output()
	var h struct {
		Drivers []struct {
			Name, Detail string
			OK           bool
		}
	}
	if err := json.Unmarshal(out, &h); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	detail, ok = map[string]string{}, map[string]bool{}
	var names []string
	for _, d := range h.Drivers {
		detail[d.Name], ok[d.Name] = d.Detail, d.OK
		names = append(names, d.Name)
	}
	return detail, ok, strings.Join(names, " ")
}

// Doctor reports the capabilities of every driver on this machine, and for one that does
// not work the reason and the package to install.
func TestDoctorReportsEveryDriver(t *testing.T) {
	t.Parallel()
	detail, ok, order := doctor(t, "HOME="+t.TempDir(), "PATH=")
	if order != "gvisor namespace microvm firecracker jail direct" {
		t.Errorf("it reports %s", order)
	}
	for name, want := range map[string][]string{
		"microvm":     {"qemu-system-x86", "squashfs-tools", "apt-get install"},
		"firecracker": {"firecracker"},
		"jail":        {"FreeBSD"},
	} {
		for _, w := range want {
			if ok[name] || !strings.Contains(detail[name], w) {
				t.Errorf("%s, with an empty PATH: %v, %q; want %q in it", name, ok[name], detail[name], w)
			}
		}
	}
	for name, works := range ok {
		switch {
		case detail[name] == "":
			t.Errorf("no details of %s", name)
		case works && (!strings.Contains(detail[name], "isolation: ") || !strings.Contains(detail[name], "can limit ")):
			t.Errorf("%s works, but its details are %q", name, detail[name])
		}
	}
	if !ok["direct"] || !strings.Contains(detail["direct"], "not isolated") || strings.Contains(detail["direct"], "the default here") {
		t.Errorf("direct: %v, %q", ok["direct"], detail["direct"])
	}
}
