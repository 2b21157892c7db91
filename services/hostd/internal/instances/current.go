package instances

import (
	"sync"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Current is the instance of a sandbox, which a reboot replaces.
type Current struct {
	mu   sync.RWMutex
	inst driver.Instance
	id   sandbox.ID // the name of the instance on the host; mostly the sandbox's own ID

	journaling sync.WaitGroup // until the journal has the owner of the instance, or journalErr is set
	journalErr error
}

// NewCurrent returns the instance of a sandbox that has none yet.
func NewCurrent(id sandbox.ID) *Current { return &Current{id: id} }

// Instance returns the driver's instance; nil without one.
func (c *Current) Instance() driver.Instance {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.inst
}

// Name returns the name of the instance and its directory.
func (c *Current) Name() sandbox.ID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.id
}

// Set replaces the instance.
func (c *Current) Set(name sandbox.ID, inst driver.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.inst = name, inst
}

// Journal runs write, which stores the owner of the instance, in the background. It may be called
// once.
func (c *Current) Journal(write func() error) {
	c.journaling.Go(func() { c.journalErr = write() })
}

// Journaled waits until the owner of the instance is stored and returns the error of that.
func (c *Current) Journaled() error {
	c.journaling.Wait()
	return c.journalErr
}
