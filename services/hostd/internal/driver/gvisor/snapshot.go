//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// A snapshot is a directory with buildFile, which says what build of gVisor made
// it, and one of the directories filesDir and memoryDir; with the latter, it also
// has the sandbox's configFile and shimFile, which its processes have mapped.
const (
	filesDir  = "files"
	memoryDir = "memory"
	buildFile = "build"
)

func hasMemory(from string) bool { return from != "" && exists(filepath.Join(from, memoryDir)) }

// keep fills dir; it is live.Box.Keep.
func (b *box) keep(ctx context.Context, dir string, memory bool) error {
	build, err := buildOf(b.r.path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, buildFile), build, 0o600); err != nil {
		return err
	}
	// Into a directory that counts only when it is whole.
	tmp := filepath.Join(dir, "new")
	args := []string{"fscheckpoint", "--leave-running", "--image-path=" + tmp, string(b.r.id)}
	to := filepath.Join(dir, filesDir)
	if memory {
		if err := errors.Join(link(b.r.in(configFile), filepath.Join(dir, configFile)), link(b.r.in(shimDir, shimFile), filepath.Join(dir, shimFile))); err != nil {
			return err
		}
		args = []string{"checkpoint", "--leave-running", "--compression=none", "--exclude-committed-zero-pages", "--image-path=" + tmp, string(b.r.id)}
		to = filepath.Join(dir, memoryDir)
	}
	if err := b.r.call(ctx, args...); err != nil {
		return err
	}
	return os.Rename(tmp, to)
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

// fits tells hosts apart that cannot read each other's snapshots. Empty where that
// cannot be told.
func fits(path string) string {
	build, err := buildOf(path)
	if err != nil {
		return ""
	}
	return name + " " + string(bytes.TrimSpace(build))
}

// from checks that a sandbox can begin from what Snapshot left.
func (r *runsc) from(s *driver.Spec) error {
	if s.From == "" {
		return nil
	}
	if !hasMemory(s.From) && !exists(filepath.Join(s.From, filesDir)) {
		return kind.New(kind.NotFound, "create sandbox", string(s.ID), "there is no snapshot of this driver")
	}
	if hasMemory(s.From) && len(s.Volumes) > 0 {
		return kind.New(kind.Precondition, "create sandbox", string(s.ID), "processes that go on cannot get volumes")
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
