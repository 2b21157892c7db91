package builder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/build"
)

// Images come with different package managers, or with none. The script never fails a build and
// reports its actions.
func TestPackagesAreInstalledByTheImagesPackageManager(t *testing.T) {
	const proxy = "http_proxy=http://127.0.0.1:1"
	records := "#!/bin/sh\necho \"${0##*/} $*\"\n"
	fails := "#!/bin/sh\necho no mirror >&2\nexit 100\n"
	ours := "#!/bin/sh\necho \"Sudo version 1.9 (Millrace's own)\"\n"
	does := "#!/bin/sh\n"
	all := map[string]string{"sudo": does, "curl": does, "git": does, "jq": does}
	with := func(more map[string]string, drop ...string) map[string]string {
		out := map[string]string{}
		for _, m := range []map[string]string{all, more} {
			for k, v := range m {
				out[k] = v
			}
		}
		for _, k := range drop {
			delete(out, k)
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		tools map[string]string
		env   string
		want  string
	}{
		{"nothing is missing", all, proxy, "are installed"},
		{"no network", with(nil, "jq"), "x=y", "Packages not installed (the build has no network): jq"},
		{"no package manager", with(nil, "git", "jq"), proxy, "Packages not installed (the image has no known package manager): git jq"},
		{"apt", with(map[string]string{"apt-get": records}, "jq", "sudo"), proxy, "install -y --no-install-recommends jq sudo\nPackages installed: jq sudo"},
		{"apt without a mirror", with(map[string]string{"apt-get": fails}, "jq"), proxy, "no mirror\nPackages not installed (the package manager failed): jq"},
		{"apk instead of the host's sudo", with(map[string]string{"apk": records, "sudo": ours}), proxy, "apk add --no-cache sudo\nPackages installed: sudo"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			for name, body := range tt.tools {
				if err := os.WriteFile(filepath.Join(bin, name), []byte(body), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"sh", "grep"} {
				path, err := exec.LookPath(name)
				if err == nil {
					err = os.Symlink(path, filepath.Join(bin, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			script := strings.ReplaceAll(installPackages, "rm -rf /var/lib/apt/lists/*", "true")
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			cmd.Env = []string{"PATH=" + bin, tt.env}
			out, err := cmd.Output()
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("got %q, %v; want %q", out, err, tt.want)
			}
		})
	}
}

func TestOnlyImagesOfRegistriesGetPackages(t *testing.T) {
	spec := build.Spec{Steps: []build.Step{{Type: build.Run, Args: []string{"make"}}}}
	for sum, want := range map[string]int{"base": 1, imageSum + "t": 2} {
		layers, _, err := plan(&origin{sum: sum}, &spec, plainKeys{})
		if err != nil || len(layers) != want {
			t.Fatalf("from %q: %d layers, %v; want %d", sum, len(layers), err, want)
		}
		if first := &layers[0]; (first.name() == stepBase) != (want == 2) {
			t.Errorf("from %q: the first layer is of step %s", sum, first.name())
		}
	}
}
