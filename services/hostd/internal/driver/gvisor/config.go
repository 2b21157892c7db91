//go:build linux

package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// configMounts returns the mount of memory at bootstrap.Directory, and nothing if the sandbox's files
// have something there, which stays visible.
func configMounts(tree string, under *layers.Below) ([]configMount, error) {
	parent, name := strings.Trim(filepath.Dir(bootstrap.Directory), "/"), strings.Trim(bootstrap.Directory, "/")
	for _, dir := range []string{parent, name} {
		found, err := under.Find(dir)
		if err != nil || found.Path != "" && !isDir(&found.Stat) {
			return nil, err
		}
		if found.Gone {
			tree = "" // the layers hide what it has there
		}
		if tree == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(tree, dir), &st); errors.Is(err, fs.ErrNotExist) {
			tree = ""
		} else if err != nil || !isDir(&st) {
			return nil, err
		}
	}
	dirs := under.Part(name)
	if tree != "" {
		dirs = append(dirs, filepath.Join(tree, name))
	}
	for _, dir := range dirs {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			return nil, err
		}
	}
	options := append([]string{"nosuid", "nodev", "noexec"}, strings.Split(nsinit.ConfigOptions, ",")...)
	return []configMount{{To: bootstrap.Directory, Type: "tmpfs", From: "tmpfs", Options: options}}, nil
}
