package e2e_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// doctor is what it says of each driver, and their names in its order.
func doctor(t *testing.T, env ...string) (said map[string]string, ok map[string]bool, order string) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), "doctor", "-o", "json")
	cmd.Env = env
	out, _ := cmd.Output() //nolint:errcheck // it fails where there is no gateway
	var h struct {
		Drivers []struct {
			Name, Detail string
			OK           bool
		}
	}
	if err := json.Unmarshal(out, &h); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said, ok = map[string]string{}, map[string]bool{}
	var names []string
	for _, d := range h.Drivers {
		said[d.Name], ok[d.Name] = d.Detail, d.OK
		names = append(names, d.Name)
	}
	return said, ok, strings.Join(names, " ")
}

// Doctor says of every driver what it could and could not do here, and of one that does
// not work why, with what to install.
func TestDoctorReportsEveryDriver(t *testing.T) {
	t.Parallel()
	said, ok, order := doctor(t, "HOME="+t.TempDir(), "PATH=")
	if order != "gvisor namespace microvm firecracker jail direct" {
		t.Errorf("it tells of %s", order)
	}
	for name, want := range map[string][]string{
		"microvm":     {"qemu-system-x86", "squashfs-tools", "apt-get install"},
		"firecracker": {"firecracker"},
		"jail":        {"FreeBSD"},
	} {
		for _, w := range want {
			if ok[name] || !strings.Contains(said[name], w) {
				t.Errorf("%s, with an empty PATH: %v, %q; want %q in it", name, ok[name], said[name], w)
			}
		}
	}
	for name, works := range ok {
		switch {
		case said[name] == "":
			t.Errorf("of %s it says nothing", name)
		case works && (!strings.Contains(said[name], "isolation: ") || !strings.Contains(said[name], "can limit ")):
			t.Errorf("of %s, which works, it says %q", name, said[name])
		}
	}
	if !ok["direct"] || !strings.Contains(said["direct"], "not isolated") || strings.Contains(said["direct"], "the default here") {
		t.Errorf("direct: %v, %q", ok["direct"], said["direct"])
	}
}
