//go:build linux

package nsinit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A root that is made from a template's tree is one overlay: the tree below,
// what the sandbox writes above. The tree's contents are untrusted, and
// in a sandbox made from another's files the upper layer too: nothing in it is
// walked through as long as the host's files are visible.

// treeBelow is the mount point of the tree while the view is built.
const treeBelow = memory + "/tree"

// treeDirs must be directories in a root; the first two are mounted on.
var treeDirs = []string{"proc", "dev", "sys", "etc", "tmp", "run"}

// treeSteps build a root from a template's tree.
var treeSteps = []step{
	{"prepare mounts", prepare},
	{"take volumes", takeVolumes},
	{"mount root", mountTree},
	{"enter root", func(*Spec) error { return unix.Chdir(root) }},
	{"make directories", func(*Spec) error { return ensureDirs(treeDirs) }},
	{"mount /proc", mountProc},
	{"mount /dev", mountDev},
	{"pivot root", pivot},
	{"mount configuration", func(*Spec) error { return MountConfig() }},
	{ShowVolumes, showVolumes},
	{"write /etc", writeEtc},
}

// mountTree mounts the template with a layer above it.
func mountTree(s *Spec) error {
	if err := unix.Mkdir(treeBelow, rootDir); err != nil {
		return &os.PathError{Op: "mkdir", Path: treeBelow, Err: err}
	}
	if err := mountHostDir(s, fdTree, s.Tree, treeBelow); err != nil {
		return fmt.Errorf("mount the template: %w", err)
	}
	return overlayWith(root, s.below(over)+treeBelow, over, work, s.gains())
}

// ensureDirs makes the names in the working directory directories. No other process
// can change them between the check and the use.
func ensureDirs(names []string) error {
	for _, name := range names {
		st, err := os.Lstat(name)
		if err == nil && st.IsDir() {
			continue
		}
		if err == nil {
			err = os.Remove(name)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		mode := uint32(rootDir)
		if name == "tmp" {
			mode = 0o1777
		}
		if err := unix.Mkdir(name, mode); err != nil {
			return &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
	}
	return nil
}

// writeEtc writes the sandbox's own files into /etc. It replaces links, which lead
// only to files in the sandbox.
func writeEtc(s *Spec) error {
	for i := range s.Files {
		path := "/" + s.Files[i].Name
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := s.Files[i].write(path, s.HasRoot); err != nil {
			return err
		}
	}
	return nil
}

// mayGain reports whether programs in the sandbox may gain privileges, which
// are limited to those of its own root.
func (s *Spec) mayGain() bool { return s.Sudo && s.HasRoot }

// gains returns the flags of a mount with programs.
func (s *Spec) gains() uintptr {
	if s.mayGain() {
		return unix.MS_NODEV
	}
	return unix.MS_NODEV | unix.MS_NOSUID
}
