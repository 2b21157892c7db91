//go:build linux

package drivertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// sudoRights: the user can become the instance's root, which has the privileges of a shim that is
// root; other users cannot. Where there is no root, sudo only runs the command.
func sudoRights(t *testing.T, b *instance) {
	root := "0"
	if os.Geteuid() != 0 && !b.own {
		root = "1000"
	}
	if got := b.shAs(t, 1000, "sudo id -u; sudo sh -c 'exit 7'; echo $?; exec sudo -n sh -c 'ps -o comm= -p $$ 2>/dev/null || echo sh'"); got != root+"\n7\nsh" {
		t.Errorf("got %q, want uid %s", got, root)
	}
	const caps = "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status"
	if shim, got := b.sh(t, caps), b.shAs(t, 1000, "sudo "+caps); got != shim {
		t.Errorf("capabilities by sudo: %s, of the shim: %s", got, shim)
	}
	if got := b.shAs(t, 1000, "LD_X=1 FLAVOUR=sweet sudo env | grep -E 'LD_|FLAVOUR|SUDO_U|PATH'"); strings.Contains(got, "LD_") || strings.Contains(got, "FLAVOUR") ||
		!strings.Contains(got, "SUDO_UID=1000\n") || !strings.Contains(got, "\nPATH=/usr/local/sbin:") && !strings.HasPrefix(got, "PATH=/usr/local/sbin:") {
		t.Errorf("root's environment: %q", got)
	}
	reopensAsOthers(t, b)
	if root != "0" {
		return
	}
	const strange = "www-data is not in the sudoers file."
	if got := b.shAs(t, 33, "sudo id -u; /etc/millrace/sudo id -u"); got != strange+"\n"+strange {
		t.Errorf("for another user: %q", got)
	}
	if got := b.shAs(t, 1000, "sudo -u www-data id -u"); got != "33" {
		t.Errorf("as another user: %q", got)
	}
	for _, script := range []string{"mount -t tmpfs none /mnt", "mknod /tmp/d b 8 0", "unshare -m true", "echo x > /proc/sysrq-trigger"} {
		if got := b.shAs(t, 1000, fmt.Sprintf("sudo sh -c '%s' 2>/dev/null && echo done", script)); got != "" && !b.own {
			t.Errorf("%s: %q", script, got)
		}
	}
	if got := b.shAs(t, 1000, "for d in $(find /etc -type d) /usr/include /usr/share/doc; do [ ! -d $d ] || sudo touch $d/x; done"); got != "" {
		t.Errorf("root cannot write to directories: %s", got)
	}
	if os.Geteuid() != 0 {
		return // in that case gVisor's root has no other groups
	}
	if got := b.shAs(t, 1000, "[ ! -x /bin/su ] && echo www-data || sudo su -s /bin/sh www-data -c 'id -un'"); got != "www-data" {
		t.Errorf("su: %q", got)
	}
	if got := b.shAs(t, 1000, "find /usr/bin /usr/sbin -perm -4000 -user root 2>/dev/null"); got != "/usr/bin/sudo" && !b.own {
		t.Errorf("set-uid root: %q", got)
	}
}
