package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
)

// mount is one mounted hierarchy: path is the mount point of its group root.
type mount struct{ path, root string }

// dir returns the directory of the group own, a path from the hierarchy's root.
func (m mount) dir(own string) string {
	if rest, ok := strings.CutPrefix(own, m.root); ok && m.root != "/" {
		own = rest
	}
	return filepath.Join(m.path, own)
}

// parseMounts parses a mountinfo: controller -> hierarchy, "" is the unified one.
func parseMounts(mountinfo string) map[string]mount {
	all := map[string]mount{}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		m := mount{root: unescape(f[3]), path: unescape(f[4])}
		switch g[0] {
		case "cgroup2":
			all[""] = m
		case "cgroup":
			for _, opt := range strings.Split(g[2], ",") {
				if opt == freezerController || slices.Contains(wanted[:], opt) {
					all[opt] = m
				}
			}
		}
	}
	return all
}

// parseOwn parses a /proc/self/cgroup: controller -> group, "" is the unified one.
func parseOwn(s string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(s) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own
}

// unescape decodes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
