//go:build linux

package microvm

import (
	"context"
	"os"
	"sync"
	"time"
)

// views caches the files that the QEMU at a path needs, until the program is replaced. It is
// safe for concurrent use.
type views struct {
	mu    sync.Mutex
	path  string    // guarded by mu
	mtime time.Time // guarded by mu
	files []string  // guarded by mu
}

func (v *views) of(ctx context.Context, program string) ([]string, error) {
	st, err := os.Stat(program)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.path == program && v.mtime.Equal(st.ModTime()) {
		return v.files, nil
	}
	files, err := filesOf(ctx, program)
	if err != nil {
		return nil, err
	}
	v.path, v.mtime, v.files = program, st.ModTime(), files
	return files, nil
}
