//go:build linux

package gvisor

import (
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

// hostsOwn creates a sandbox of the host template, changed by change.
func hostsOwn(t *testing.T, d *Driver, change func(*driver.Spec)) driver.Instance {
	t.Helper()
	s := driver.Spec{ID: sandbox.NewID(), Dir: t.TempDir(), Sudo: true}
	drivertest.Shim(&s)
	change(&s)
	return drivertest.Create(t, d, s)
}

// Root inside can read those of the host's own files that all users can read, with any
// overlay or volume, and all of the sandbox's files.
func TestRootInsideCannotReadHostFilesOfRootOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: hostd can read no more than other users")
	}
	d := New(testConfig(t))
	paths := drivertest.PlantSecrets(t)
	if len(paths) == 0 {
		t.Skip("the host's /usr is read-only")
	}
	overlaid := drivertest.InOverlays(t, "/usr")
	try := func(t *testing.T, in driver.Instance) {
		t.Helper()
		if why := d.unveiled.Load(); why != nil {
			if overlaid {
				t.Skip(*why)
			}
			t.Fatal(*why)
		}
		expect(t, in, "cat "+strings.Join(paths, " ")+" 2>/dev/null; stat -c %u /usr/bin/env", "0\n")
		expect(t, in, "stat -c %a "+paths[0], "600\n") // it exists
		expect(t, in, "cd /usr/local/lib && echo own > of-root && chmod 600 of-root && cat of-root; stat -c %u of-root", "own\n0\n")
	}
	volumes := func(s *driver.Spec) {
		s.Volumes = []driver.Volume{{Source: t.TempDir(), Path: "/usr/local/lib/of-millrace/a"}, {Source: t.TempDir(), Path: "/usr/share/of-millrace"}}
	}
	plain := hostsOwn(t, d, func(*driver.Spec) {})
	try(t, plain)
	const files = "cat /usr/local/lib/kept; stat -c '%u %a' /usr/local/lib/kept; ls /usr/share/doc"
	expect(t, plain, "echo kept > /usr/local/lib/kept; rm -r /usr/share/doc && mkdir /usr/share/doc;"+files, "kept\n0 644\n")
	snapshot, memory := kept(t, plain, false), kept(t, plain, true)
	for _, tt := range []struct {
		name         string
		change       func(*driver.Spec)
		script, want string
	}{
		{"from memory", func(s *driver.Spec) { s.From = memory }, files, "kept\n0 644\n"},
		{"from files", func(s *driver.Spec) { s.From = snapshot }, files, "kept\n0 644\n"},
		{"from files with volumes", func(s *driver.Spec) { volumes(s); s.From = snapshot }, files, "kept\n0 644\n"},
		{"with volumes", volumes, "cd /usr/local/lib/of-millrace/a && echo in > f && cat f; cd /usr/share/of-millrace && echo in > f && stat -c %u f", "in\n0\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := hostsOwn(t, d, tt.change)
			try(t, in)
			expect(t, in, tt.script, tt.want)
		})
	}
}
