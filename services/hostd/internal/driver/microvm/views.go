//go:build linux

package microvm

import (
	"context"
	"os"
	"sync"
	"time"
)

// views remembers what the QEMU of a path must see, until somebody replaces it. It may be
// used by many at a time.
type views struct {
	mu    sync.Mutex
	path  string    // by mu
	mtime time.Time // by mu
	files []string  // by mu
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
