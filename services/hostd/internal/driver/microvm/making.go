//go:build linux

package microvm

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// images are trees as files that a guest can have as its disk. What is being made goes on
// when who asked for it has gone, until close: a large tree may take longer than anybody
// has time.
type images struct {
	dir  string
	life context.Context //nolint:containedctx // of all that is being made
	end  context.CancelFunc

	slots chan struct{} // has a value for each image that is being made

	mu     sync.Mutex         // also held while images are looked for and removed
	making map[string]*making // by mu; by what names it
	makers sync.WaitGroup     // begun by mu, while life lasts
}

// making is something that is being made.
type making struct {
	done chan struct{} // closed at its end
	path string        // set before done is closed
	err  error         // why there is none; as path
}

const (
	makeTime = 30 * time.Minute // in which an image must be made, once it is its turn
	atOnce   = 2                // images: one that takes long holds up nobody who wants another one
)

func newImages(dir string) *images {
	i := &images{dir: dir, making: map[string]*making{}, slots: make(chan struct{}, atOnce)}
	i.life, i.end = context.WithCancel(context.Background())
	return i
}

// close ends what is being made, and waits for that.
func (i *images) close() {
	i.mu.Lock()
	i.end()
	i.mu.Unlock()
	i.makers.Wait()
}

// once waits for what f makes, which is begun unless that is being done already, as long
// as ctx lasts. f lasts longer.
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
	if err := i.life.Err(); err != nil {
		return nil, err
	}
	if m := i.making[name]; m != nil {
		return m, nil
	}
	m := &making{done: make(chan struct{})}
	i.making[name] = m
	i.makers.Go(func() {
		m.path, m.err = f(i.life)
		i.mu.Lock()
		delete(i.making, name)
		i.mu.Unlock()
		close(m.done)
	})
	return m, nil
}
