//go:build linux

package microvm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// images are disk images of trees. An image that is being made continues without its
// caller, until close: a large tree may take longer than any caller
// waits.
type images struct {
	dir    string
	ctx    context.Context // ended by close
	cancel context.CancelFunc

	slots chan struct{} // one value for each image that is being made

	mu     sync.Mutex         // also held while images are looked up and removed
	making map[string]*making // guarded by mu; by name
	makers sync.WaitGroup     // started under mu, before ctx ends
}

// making is an image or directory that is being made.
type making struct {
	done chan struct{} // closed when it has ended
	path string        // set before done is closed
	err  error         // set before done is closed; nil: path exists
}

const (
	makeTime      = 30 * time.Minute // time limit of an image, once it has a slot
	maxConcurrent = 2                // images at once: a slow one must not delay others
)

func newImages(dir string) *images {
	i := &images{dir: dir, making: map[string]*making{}, slots: make(chan struct{}, maxConcurrent)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// close cancels all work in progress, and waits for its end.
func (i *images) close() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
	i.makers.Wait()
}

// once waits, as long as ctx lasts, for what f makes; f is started unless it is running
// already, and outlasts ctx.
func (i *images) once(ctx context.Context, name string, f func(context.Context) (string, error)) (string, error) {
	m, err := i.begin(name, f)
	if err != nil {
		return "", err
	}
	select {
	case <-m.done:
		return m.path, m.err
	case <-ctx.Done():
		return "", fmt.Errorf("the template's image is still being made: %w", ctx.Err())
	}
}

func (i *images) begin(name string, f func(context.Context) (string, error)) (*making, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.ctx.Err(); err != nil {
		return nil, err
	}
	if m := i.making[name]; m != nil {
		return m, nil
	}
	m := &making{done: make(chan struct{})}
	i.making[name] = m
	i.makers.Go(func() {
		m.path, m.err = f(i.ctx)
		i.mu.Lock()
		delete(i.making, name)
		i.mu.Unlock()
		close(m.done)
	})
	return m, nil
}
