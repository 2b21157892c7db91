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

// For a snapshot of files see package layers. One with the memory is a directory with
// memoryDir; buildFile, which names the build of gVisor that made it; the sandbox's
// configFile and shimFile, which its processes have mapped; and belowDir, the snapshot
// of files that the sandbox was made from, if any.
const (
	memoryDir = "memory"
	buildFile = "build"
	belowDir  = "below"
)

func hasMemory(from string) bool { return from != "" && exists(filepath.Join(from, memoryDir)) }

// below returns the snapshot of files that a sandbox made from the snapshot from is based on.
func below(from string) string {
	if !hasMemory(from) {
		return from
	}
	if from = filepath.Join(from, belowDir); exists(from) {
		return from
	}
	return ""
}

// save fills dir with the files; it implements live.Instance.Save.
func (b *instance) save(ctx context.Context, dir string) error {
	tree := b.State.Tree
	layer, err := layers.Begin(ctx, b.State.From, dir, tree)
	if err != nil {
		return err
	}
	store, err := store(b.State.PID)
	if err != nil {
		return err
	}
	defer store.Close()
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

// seededOver returns the files that a sandbox over the layers of the snapshot from started
// with: over a template's tree always all.
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

// list makes gVisor write the list of the files that it holds and of their positions in the
// store, and calls read on it meanwhile. The list can be of any length and is never stored.
// All other output of gVisor, including the files' contents, is discarded.
func (b *instance) list(ctx context.Context, read func(io.Reader) error) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	list, its, err := os.Pipe()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { list.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	done := make(chan error, 1)
	go func() {
		err := b.control.call(ctx, "containerManager.FSSave", struct{}{}, nil, null, its, null, null)
		done <- errors.Join(err, its.Close())
	}()
	err = read(list)
	if err == nil {
		_, err = io.Copy(io.Discard, list) // padding of the last block
	}
	list.Close()
	return errors.Join(err, <-done)
}

// checkpoint fills dir with the memory; it implements live.Instance.Checkpoint.
func (b *instance) checkpoint(ctx context.Context, dir string, _ bool) error {
	program, err := b.program()
	if err != nil {
		return err
	}
	defer program.Close()
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
	tmp := filepath.Join(dir, "new") // valid only when it is complete
	err = b.r.call(ctx, program, "checkpoint", "--leave-running", "--compression=none", "--exclude-committed-zero-pages", "--image-path="+tmp, string(b.r.id))
	b.nudge()
	if err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, memoryDir))
}

// Checkpointing implements driver.Checkpointer: the stacks of gVisor's own program show it.
func (b *instance) Checkpointing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var stacks string
	err := b.control.call(ctx, "debug.Stacks", struct{}{}, &stacks)
	return err == nil && strings.Contains(stacks, "state.(*SaveOpts).Save(")
}

// nudge makes the shim read its stream. GVisor takes pending input out of the stream to
// save it with the memory and returns it to the next reader, but it reports that there is
// something to read only when more arrives.
func (b *instance) nudge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if conn := b.conn; conn != nil {
		go conn.Nudge() //nolint:errcheck // if the connection ends, the next one nudges it
	}
}

// buildOf returns an identifier that is equal for builds of millrace-runsc that can read
// each other's memory.
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
	return nil, fmt.Errorf("%s does not contain gVisor's module", path)
}

// fits returns an identifier that is equal for hosts that can read each other's memory.
// Empty if it cannot be determined.
func fits(path string) string {
	build, err := buildOf(path)
	if err != nil {
		return ""
	}
	return name + " " + string(bytes.TrimSpace(build))
}

// Fits implements driver.Versioned.
func (b *instance) Fits() string {
	program, err := b.program()
	if err != nil {
		return ""
	}
	defer program.Close()
	return fits(pathOf(program))
}

func pathOf(open *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", open.Fd()) }

// from checks that a sandbox can be made from what Snapshot saved.
func (r *runsc) from(s *driver.Spec) error {
	if hasMemory(s.From) && len(s.Volumes) > 0 {
		return kind.New(kind.Precondition, "create sandbox", string(s.ID), "a snapshot with memory cannot be combined with volumes")
	}
	if !hasMemory(s.From) {
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
			"the snapshot was made with gVisor build %s, this host has %s", bytes.TrimSpace(made), bytes.TrimSpace(ours))
	}
	return nil
}
