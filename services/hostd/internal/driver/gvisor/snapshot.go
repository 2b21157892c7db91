//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
)

// A snapshot of files is what package layers says. One with the memory is a directory
// with memoryDir; with buildFile, which says what build of gVisor made it; with the
// sandbox's configFile and shimFile, which its processes have mapped; and with belowDir,
// the snapshot of files that the sandbox was made from, if it was. Older versions kept
// files, too, in a form of the build's own: filesDir.
const (
	memoryDir = "memory"
	buildFile = "build"
	belowDir  = "below"
	filesDir  = "files"
)

func hasMemory(from string) bool { return from != "" && exists(filepath.Join(from, memoryDir)) }

func hasOldFiles(from string) bool { return from != "" && exists(filepath.Join(from, filesDir)) }

// below is the snapshot of files that a sandbox which is made from one stands on.
func below(from string) string {
	switch {
	case hasOldFiles(from):
		return ""
	case !hasMemory(from):
		return from
	}
	if from = filepath.Join(from, belowDir); exists(from) {
		return from
	}
	return ""
}

// save fills dir with the files; it is live.Box.Save.
func (b *box) save(ctx context.Context, dir string) error {
	tree, err := b.tree()
	if err != nil {
		return err
	}
	layer, err := layers.Begin(ctx, b.State.From, dir, tree)
	if err != nil {
		return err
	}
	store, err := store(b.State.PID)
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // it was only read
	seeded, err := seededOver(b.State.From, tree)
	if err != nil {
		return err
	}
	err = b.list(ctx, func(list io.Reader) error { return unpack(ctx, layer, list, store, !tree, seeded) })
	if err != nil {
		return layers.Error(err)
	}
	return layer.Commit()
}

// seededOver are the files that a place over the layers of the snapshot from began with:
// over a template's tree always all.
func seededOver(from string, tree bool) (map[string]bool, error) {
	m, err := layers.Read(from)
	if err != nil {
		return nil, err
	}
	under, seeded := layers.Under(from, m), map[string]bool{}
	for _, name := range namespace.OwnFiles() {
		found, err := under.Find(name)
		if err != nil {
			return nil, err
		}
		seeded[name] = tree || found.Path == "" && !found.Gone
	}
	return seeded, nil
}

// tree reports whether the sandbox has a template's tree. The state of one that an older
// version made does not say.
func (b *box) tree() (bool, error) {
	c, err := readConfig(b.r.in(configFile))
	return b.State.Tree || c.Root.Path != b.r.in(rootDir), err
}

// list has gVisor tell which files it holds, and where they are in the store, and read
// read it meanwhile, so that the list is nowhere: there may be any number of files. What
// gVisor would tell besides, their contents among it, nobody needs.
func (b *box) list(ctx context.Context, read func(io.Reader) error) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // there is nothing in it
	list, its, err := os.Pipe()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { list.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a pipe takes deadlines
	defer stop()
	told := make(chan error, 1)
	go func() {
		err := b.control.call(ctx, "containerManager.FSSave", struct{}{}, nil, null, its, null, null)
		told <- errors.Join(err, its.Close())
	}()
	err = read(list)
	if err == nil {
		_, err = io.Copy(io.Discard, list) // what fills up its last block
	}
	list.Close() //nolint:errcheck // it was only read
	return errors.Join(err, <-told)
}

// keep fills dir with the memory; it is live.Box.Keep.
func (b *box) keep(ctx context.Context, dir string, _ bool) error {
	program, err := b.program()
	if err != nil {
		return err
	}
	defer program.Close() //nolint:errcheck // it was only read
	build, err := buildOf(pathOf(program))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, buildFile), build, 0o600); err != nil {
		return err
	}
	if err := errors.Join(link(b.r.in(configFile), filepath.Join(dir, configFile)), link(b.r.in(shimDir, shimFile), filepath.Join(dir, shimFile))); err != nil {
		return err
	}
	if b.State.From != "" {
		to := filepath.Join(dir, belowDir)
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := layers.Share(ctx, b.State.From, to); err != nil {
			return err
		}
	}
	tmp := filepath.Join(dir, "new") // it counts only when it is whole
	err = b.r.call(ctx, program, "checkpoint", "--leave-running", "--compression=none", "--exclude-committed-zero-pages", "--image-path="+tmp, string(b.r.id))
	b.nudge()
	if err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, memoryDir))
}

// Keeping is driver.Keeping.Keeping: where gVisor's own program is tells.
func (b *box) Keeping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var stacks string
	err := b.control.call(ctx, "debug.Stacks", struct{}{}, &stacks)
	return err == nil && strings.Contains(stacks, "state.(*SaveOpts).Save(")
}

// nudge has the shim look at its stream. GVisor takes what is on the way to it out of the
// stream to keep it with the memory, and gives it to who reads next; but it only says that
// there is something to read when more comes.
func (b *box) nudge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if conn := b.conn; conn != nil {
		go conn.Nudge() //nolint:errcheck // where the connection ends, the next one has it look
	}
}

// buildOf tells builds of millrace-runsc apart that cannot read each other's
// memory.
func buildOf(path string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, dep := range info.Deps {
		if dep.Path == "gvisor.dev/gvisor" {
			return fmt.Appendf(nil, "%s %s %s\n", info.GoVersion, runtime.GOARCH, dep.Version), nil
		}
	}
	return nil, fmt.Errorf("%s is not built of gVisor's module", path)
}

// fits tells hosts apart that cannot read each other's memory. Empty where that cannot
// be told.
func fits(path string) string {
	build, err := buildOf(path)
	if err != nil {
		return ""
	}
	return name + " " + string(bytes.TrimSpace(build))
}

// Fits is driver.Built.Fits.
func (b *box) Fits() string {
	program, err := b.program()
	if err != nil {
		return ""
	}
	defer program.Close() //nolint:errcheck // it was only read
	return fits(pathOf(program))
}

func pathOf(open *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", open.Fd()) }

// from checks that a sandbox can begin from what Snapshot left.
func (r *runsc) from(s *driver.Spec) error {
	if hasMemory(s.From) && len(s.Volumes) > 0 {
		return kind.New(kind.Precondition, "create sandbox", string(s.ID), "processes that go on cannot get volumes")
	}
	if !hasMemory(s.From) && !hasOldFiles(s.From) {
		_, err := layers.For(s.From, s.Root != "")
		return kind.Wrap(kind.Of(err), "create sandbox", string(s.ID), err)
	}
	made, err := os.ReadFile(filepath.Join(s.From, buildFile))
	if err != nil {
		return err
	}
	ours, err := buildOf(r.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(made, ours) {
		return kind.Newf(kind.Precondition, "create sandbox", string(s.ID),
			"the snapshot was made with another gVisor: %s, here is %s", bytes.TrimSpace(made), bytes.TrimSpace(ours))
	}
	return nil
}
