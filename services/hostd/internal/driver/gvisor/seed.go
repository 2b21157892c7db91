//go:build linux

package gvisor

import (
	"archive/tar"
	"cmp"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// seedTime is the modification time of initial files, as long as they are unchanged.
const seedTime = 0

// seed writes the tar of the files that a sandbox starts with on top of all layers.
type seed struct {
	w     *tar.Writer
	under *layers.Below
	tree  string // the template's tree; "" for the host template
	done  map[string]bool
}

// writeSeed writes the initial files of a sandbox. A file in /tmp keeps gVisor from
// mounting a tmpfs there.
func (d *Driver) writeSeed(to string, s *driver.Spec, files []nsinit.File, under *layers.Below) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := seed{tar.NewWriter(f), under, s.Root, map[string]bool{}}
	if err := w.dirs(); err != nil {
		return err
	}
	for i := range files {
		if err := w.file(&files[i]); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 {
		if err := d.writeOwned(&w); err != nil {
			return err
		}
	}
	if err := w.w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// dirs writes the directories.
func (w *seed) dirs() error {
	dirs := []tar.Header{
		{Mode: 0o755}, {Name: "etc", Mode: 0o755}, {Name: "home", Mode: 0o755}, {Name: home, Mode: 0o755, Uid: userID, Gid: userID},
		{Name: "tmp", Mode: 0o1777}, {Name: "tmp/.X11-unix", Mode: 0o1777},
	}
	if w.tree == "" {
		dirs = append(dirs, tar.Header{Name: "root", Mode: 0o700}, tar.Header{Name: "var", Mode: 0o755}, tar.Header{Name: "var/tmp", Mode: 0o1777},
			tar.Header{Name: "var/log", Mode: 0o755}, tar.Header{Name: "var/lib", Mode: 0o755}, tar.Header{Name: "var/cache", Mode: 0o755},
			tar.Header{Name: "etc/skel", Mode: 0o755}, tar.Header{Name: "usr", Mode: 0o755}, tar.Header{Name: "usr/bin", Mode: 0o755})
	}
	for i := range dirs {
		h := &dirs[i]
		found, err := w.under.Find(h.Name)
		if err != nil {
			return err
		}
		needed := h.Name == "" || h.Name == "etc" || strings.HasPrefix(h.Name, "tmp")
		switch {
		case h.Name != "" && found.Path != "" && isDir(&found.Stat):
			w.as(h, &found.Stat)
		case h.Name != "" && (found.Path != "" || found.Gone) && !needed:
			continue
		}
		h.Typeflag = tar.TypeDir
		if err := w.header(h); err != nil {
			return err
		}
	}
	return nil
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// as copies mode and times of a file to a header, and its owner where that is known.
func (w *seed) as(h *tar.Header, st *unix.Stat_t) {
	h.Mode, h.ModTime = int64(st.Mode&0o7777), time.Unix(st.Mtim.Unix())
	if os.Geteuid() == 0 {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
}

// file writes a file that is the sandbox's own. Over the host's files it goes
// below the layers. A layer can have something else in the place of its directory.
func (w *seed) file(f *nsinit.File) error {
	if !w.done[path.Dir(f.Name)] {
		return nil
	}
	if w.tree == "" {
		found, err := w.under.Find(f.Name)
		if err != nil || found.Path != "" || found.Gone {
			return err
		}
	}
	h := tar.Header{
		Name: f.Name, Mode: int64(cmp.Or(f.Mode, 0o644)), Uid: int(f.Owner), Gid: int(f.Owner),
		Size: int64(len(f.Body)), Typeflag: tar.TypeReg, ModTime: time.Unix(seedTime, 0),
	}
	if err := w.header(&h); err != nil {
		return err
	}
	_, err := io.WriteString(w.w, f.Body)
	return err
}

// header writes a header in the form that gVisor requires.
func (w *seed) header(h *tar.Header) error {
	w.done[h.Name] = true
	h.Name, h.Format = "./"+h.Name, tar.FormatPAX
	if h.Typeflag == tar.TypeDir && h.Name != "./" {
		h.Name += "/"
	}
	return w.w.WriteHeader(h)
}
