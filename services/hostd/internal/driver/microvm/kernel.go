//go:build linux

package microvm

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

// kernel is Debian's cloud kernel.
type kernel struct {
	image   string
	modules []string // files, in load order
}

// moduleNames returns the modules that the guest needs for its disk and its port.
func moduleNames() []string {
	return []string{
		"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
		"drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "drivers/block/virtio_blk",
		"drivers/char/virtio_console", "fs/squashfs/squashfs", "fs/overlayfs/overlay",
	}
}

func (d *Driver) kernel() (kernel, error) {
	return findKernel(d.cfg.Kernel, "vmlinuz-", moduleNames())
}

// findKernel finds the newest kernel in a directory; empty: in the default directories.
func findKernel(in, prefix string, modules []string) (kernel, error) {
	dirs := []string{in}
	if in == "" {
		dirs = []string{"/var/lib/millrace/microvm", "/"}
	}
	for _, dir := range dirs {
		images, err := filepath.Glob(filepath.Join(dir, "boot", prefix+"*-cloud-amd64"))
		if err != nil || len(images) == 0 {
			continue
		}
		slices.Sort(images)
		k := kernel{image: images[len(images)-1]}
		release := filepath.Base(k.image)[len(prefix):]
		for _, m := range modules {
			file := filepath.Join(dir, "lib/modules", release, "kernel", m+".ko")
			if _, err := os.Stat(file); err != nil {
				return k, err
			}
			k.modules = append(k.modules, file)
		}
		return k, nil
	}
	return kernel{}, fmt.Errorf("no %s*-cloud-amd64 in boot of %v; Debian: apt-get download linux-image-*-cloud-amd64, and dpkg-deb -x it there", prefix, dirs)
}

// errDynamic reports the usual reason why a shim does not boot.
var errDynamic = errors.New("the shim is not a static binary: build it with CGO_ENABLED=0")

// static returns an error for a binary that needs libraries.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errDynamic
	}
	return nil
}

// writeInitrd writes the guest's first file system.
func (k *kernel) writeInitrd(path, shim string, boot vminit.Boot) (err error) {
	if err := static(shim); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(0o644); err != nil { // QEMU's uid opens it again
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	a := archive{w: buffered}
	for _, dir := range []string{"dev", "proc", "newroot", "lower", "rw", vminit.Modules} {
		a.add(entry{name: dir, mode: modeDir | 0o755})
	}
	a.add(entry{name: "dev/console", mode: modeChar | 0o600, major: 5, minor: 1})
	a.add(entry{name: "dev/null", mode: modeChar | 0o666, major: 1, minor: 3})
	for _, file := range k.modules {
		name := filepath.Base(file)
		boot.Modules = append(boot.Modules, name)
		a.addFile(vminit.Modules+"/"+name, file, 0o600)
	}
	a.addFile(vminit.ShimFile, shim, 0o755)
	b, err := json.Marshal(boot)
	if err != nil {
		return err
	}
	a.add(entry{name: vminit.BootFile, mode: modeFile | 0o600, data: b})
	if err := a.close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// entry is a file of an archive in the "newc" format of cpio.
type entry struct {
	name         string
	mode         uint32
	major, minor uint32 // for a device
	data         []byte
}

const (
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
)

// archive writes entries; it keeps the first error.
type archive struct {
	w   io.Writer
	ino uint32
	err error
}

func (a *archive) add(e entry) {
	a.ino++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name)
	a.padded([]byte(head))
	a.padded(e.data)
}

// padded writes b, padded to a multiple of four bytes.
func (a *archive) padded(b []byte) {
	for _, b := range [][]byte{b, make([]byte, -len(b)&3)} {
		if a.err == nil {
			_, a.err = a.w.Write(b)
		}
	}
}

func (a *archive) addFile(name, path string, perm uint32) {
	b, err := os.ReadFile(path)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(entry{name: name, mode: modeFile | perm, data: b})
}

func (a *archive) close() error {
	a.add(entry{name: "TRAILER!!!"})
	return a.err
}
