package hostd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// A sandbox that fills the host's disk is evicted, which its record says; its neighbor continues.
func TestSandboxThatFillsTheDiskIsEvicted(t *testing.T) {
	for name, tt := range map[string]struct{ disk, fill string }{
		"bytes": {"size=256m", "head -c 300000000 /dev/zero > fill"},
		// The file has no name.
		"bytes without a name": {"size=256m", "exec 3> fill; rm fill; head -c 300000000 /dev/zero >&3"},
		"files":                {"nr_inodes=100k", "(mkdir many; cd many; i=0; while [ $i -lt 200000 ]; do : > $i; i=$((i+1)); done)"},
	} {
		t.Run(name, func(t *testing.T) { testFull(t, tt.disk, tt.fill) })
	}
}

func testFull(t *testing.T, options, fill string) {
	r := newRig(t)
	r.onSmallDisk(options)
	r.begin()
	r.awaitLease(0)
	neighbor, consumer := r.sandbox(), r.sandbox()
	filler := r.start(consumer, sh(fill+"; sleep 600"))
	if exit := r.whole(filler).end(); exit == nil || exit.Signal != int32(unix.SIGKILL) && exit.Message != disk.ErrEvicted.Error() {
		t.Errorf("the process that filled the disk ended as %s", describe(exit)) // the shim may have reported the kill
	}
	if s := r.awaitPhase(consumer, sandbox.PhaseLost); s.Cause != disk.ErrEvicted.Error() {
		t.Errorf("record of the evicted sandbox: %+v", s)
	}
	if exit := r.whole(r.start(neighbor, sh("head -c 10000000 /dev/zero > file"))).end(); describe(exit) != "exited 0" {
		t.Errorf("a writing process of its neighbor ended as %s", describe(exit))
	}
	if d := disk.SpaceOf(r.cfg.DataDir); d.Free < d.Total/2 || d.FreeFiles < d.Files/2 {
		t.Errorf("disk after the eviction: %+v", d)
	}
}

// Unused templates are removed before any sandbox is evicted.
func TestUnusedTemplatesAreRemovedBeforeEviction(t *testing.T) {
	r := newRig(t)
	r.onSmallDisk("size=256m")
	tree := r.keepTree(120 << 20)
	r.begin()
	r.awaitLease(0)
	if _, err := os.Stat(tree); err != nil {
		t.Fatal(err)
	}
	// The first part leaves more than the reserve free. The next one is slow, so that a loaded host
	// has seconds between the reserve and a full disk; the last one does not fit beside the template.
	fill := "head -c 120000000 /dev/zero > file || exit 1; until [ -e removed ]; do head -c 200000 /dev/zero >> file || exit 2; sleep 0.1; done; " +
		"head -c 60000000 /dev/zero >> file || exit 3"
	sbx := r.sandbox()
	filler := r.start(sbx, sh(fill))
	until(t, "removed templates", 1, func() int {
		if _, err := os.Stat(tree); errors.Is(err, fs.ErrNotExist) && disk.SpaceOf(r.cfg.DataDir).Free > 80<<20 {
			return 1
		}
		return 0
	})
	r.start(sbx, sh("touch removed"))
	if exit := r.whole(filler).end(); describe(exit) != "exited 0" {
		t.Errorf("a process that wrote 190 of 256 MB, with 120 of an unused template, ended as %s", describe(exit))
	}
}

// keepTree puts a template of that many bytes into the host's cache, as an earlier run might.
func (r *rig) keepTree(size int) (root string) {
	r.t.Helper()
	cache, err := openTemplates(&r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, id := treeOf(r.t, size)
	dir := filepath.Join(r.cfg.DataDir, "tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, size), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := cache.Adopt(dir, raw); err != nil {
		r.t.Fatal(err)
	}
	return filepath.Join(r.cfg.DataDir, templatesDir, string(id), "root")
}

// treeOf returns the manifest of keepTree's template and its ID.
func treeOf(t testing.TB, size int) ([]byte, template.ID) {
	t.Helper()
	m := template.Manifest{Arch: runtime.GOARCH, Files: 1, Size: int64(size), Tar: 1, Parts: []template.Sum{template.SumOf(nil)}}
	raw, id, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw, id
}

// onSmallDisk moves the host's data to a file system of its own.
func (r *rig) onSmallDisk(options string) {
	r.t.Helper()
	small, err := os.MkdirTemp("", "hostd")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Mount("none", small, "tmpfs", 0, options); err != nil {
		r.t.Skipf("mount: %v", err)
	}
	was := r.cfg.DataDir
	r.t.Cleanup(func() {
		r.kill()
		r.clear()
		unix.Unmount(small, unix.MNT_DETACH)
		os.Remove(small)
		r.cfg.DataDir = was // the directory of the rig's last run
	})
	r.cfg.DataDir = small
}

// A run that starts on a full disk frees space before its first request: servers on the same disk
// need that first. The record has the reason why the sandbox ended.
func TestHostStartsOnAFullDisk(t *testing.T) {
	r := newRig(t)
	r.onSmallDisk("size=256m")
	r.begin()
	r.awaitLease(0)
	neighbor, consumer := r.sandbox(), r.sandbox()
	held := r.start(neighbor, counts())
	home := strings.TrimSpace(string(r.whole(r.start(consumer, sh("pwd"))).out[process.Stdout]))
	r.kill()
	fill, err := os.Create(filepath.Join(home, "fill")) // as the sandbox might while no host runs
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 1<<20))
	}
	fill.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	r.srv.Stop()
	r.begin()
	until(t, "disks with free space", 1, func() int {
		if d := disk.SpaceOf(r.cfg.DataDir); d.Free < d.Total/2 {
			return 0
		}
		return 1
	})
	r.srv.Resume()
	if s := r.awaitPhase(consumer, sandbox.PhaseLost); s.Cause != disk.ErrEvicted.Error() {
		t.Errorf("record of the evicted sandbox: %+v", s)
	}
	r.awaitOutput(held, "\n20\n")
	r.stopSandbox(neighbor)
	wantCount(t, "neighbor", r.whole(held).upTo(1<<60))
}

// Unused templates are removed before the lease, too, but none that a sandbox is based on, or
// might be.
func TestUnusedTemplatesAreRemovedBeforeTheLease(t *testing.T) {
	const size = 120 << 20
	_, tree := treeOf(t, size)
	for name, tt := range map[string]struct {
		stored map[sandbox.ID]journal.Created
		dirs   []string // of instances
		want   bool     // it is kept
	}{
		"unused":                           {map[sandbox.ID]journal.Created{"a": {Driver: "direct", Trees: journal.Trees{}}}, []string{"a"}, false},
		"another one in use":               {map[sandbox.ID]journal.Created{"a": {Driver: "direct", Instance: "b", Trees: journal.Trees{"another"}}}, []string{"b"}, false},
		"in use":                           {map[sandbox.ID]journal.Created{"a": {Driver: "direct", Trees: journal.Trees{tree}}}, []string{"a"}, true},
		"use unknown":                      {map[sandbox.ID]journal.Created{"a": {Driver: "direct"}}, []string{"a"}, true},
		"instance without a journal entry": {nil, []string{"a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.onSmallDisk("size=124m")
			root := r.keepTree(size)
			j, err := journal.Open(r.cfg.DataDir, r.cfg.Slog)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			for id, m := range tt.stored {
				err = errors.Join(err, j.SetSandbox(id, m))
			}
			r.cfg.metrics = newMetrics(&r.cfg)
			cache, cerr := openTemplates(&r.cfg)
			h := &host{cfg: r.cfg, slog: r.cfg.Slog, journal: j}
			h.cache = cache
			h.assemble()
			err = errors.Join(err, h.shim.Find())
			for _, dir := range tt.dirs {
				err = errors.Join(err, os.MkdirAll(h.instances.Dir(sandbox.ID(dir)), 0o700))
			}
			if err = errors.Join(err, cerr); err != nil {
				t.Fatal(err)
			}
			if err := h.instances.EvictBeforeLease(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(root); (err == nil) != tt.want {
				t.Errorf("kept: %v, want %v", err == nil, tt.want)
			}
		})
	}
}

// The sandboxes that use the volume that fills the disk are evicted; not those that used much of
// the disk before, although evicting them would free space and this does not.
func TestUsersOfAVolumeThatFillsTheDiskAreEvicted(t *testing.T) {
	r := newRig(t)
	r.onSmallDisk("size=256m")
	r.begin()
	r.awaitLease(0)
	full, other := r.volume("full"), r.volume("other")
	sees := func(v sandbox.VolumeID) sandbox.ID {
		return r.awaitPhase(r.request(sandbox.Requested{Template: "base", Volumes: []sandbox.Mount{{Volume: v, Path: r.seen(v)}}}), sandbox.PhaseRunning).ID
	}
	consumer, with, neighbor, quiet := sees(full), sees(full), sees(other), r.sandbox()
	for _, run := range []process.ID{
		r.start(quiet, sh("head -c 40000000 /dev/zero > mine")),
		r.start(neighbor, sh("head -c 40000000 /dev/zero > "+r.seen(other)+"/mine")),
	} {
		if exit := r.whole(run).end(); describe(exit) != "exited 0" {
			t.Fatalf("a writing process ended as %s", describe(exit))
		}
	}
	left := disk.SpaceOf(r.cfg.DataDir)
	r.start(consumer, sh(fmt.Sprintf("cd %s; head -c %d /dev/zero > most; while head -c 100000 /dev/zero; do sleep 0.01; done > rest", r.seen(full), left.Free-left.Total/8)))
	for _, id := range []sandbox.ID{consumer, with} {
		if s := r.awaitPhase(id, sandbox.PhaseLost); s.Cause != disk.ErrEvicted.Error() {
			t.Errorf("record of %s: %+v", id, s)
		}
	}
	for _, id := range []sandbox.ID{neighbor, quiet} {
		if exit := r.whole(r.start(id, sh("sleep 0.5; head -c 100000 /dev/zero > file"))).end(); describe(exit) != "exited 0" {
			t.Errorf("a writing process of its neighbor ended as %s", describe(exit))
		}
	}
}

// volume creates a volume.
func (r *rig) volume(name string) sandbox.VolumeID {
	r.t.Helper()
	v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: tenant, Name: name, Host: r.cfg.Name, Created: time.Now()}
	if err := r.log.NewVolume(r.ctx(), &v); err != nil {
		r.t.Fatal(err)
	}
	r.awaitTrue(func() bool { v, _ := r.view.Volume(v.ID); return v.Made })
	return v.ID
}

// seen returns where a sandbox sees a volume. Without a root of its own it is a path of the host.
func (r *rig) seen(v sandbox.VolumeID) string { return filepath.Join(r.cfg.DataDir, "see-"+string(v)) }
