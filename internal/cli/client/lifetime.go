package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Ceil returns d in units, rounded away from 0: a fraction must not become 0, which means
// no limit for a process and now for a sandbox.
func Ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	switch rest := d % unit; {
	case rest > 0:
		n++
	case rest < 0:
		n--
	}
	return n
}

// AtMost calls f with a timeout and, if the gateway allows only less, once more with
// that. A timeout that the user named is not reduced: its error is returned.
func AtMost(lifetime time.Duration, named bool, f func(time.Duration) error) error {
	err := f(lifetime)
	var e *Error
	if named || !errors.As(err, &e) || e.Status != http.StatusBadRequest {
		return err
	}
	var most int64 // seconds
	if _, serr := fmt.Sscanf(e.Message, "timeout cannot be greater than %d seconds", &most); serr != nil || most < 1 {
		return err
	}
	return f(time.Duration(most) * time.Second)
}

// CreateFor creates a sandbox with the timeout lifetime, reduced to the gateway's maximum
// unless the user named it, and returns the timeout granted. See prolong.
func (c *Client) CreateFor(ctx context.Context, spec SandboxSpec, lifetime time.Duration, named bool) (sbx string, granted time.Duration, err error) {
	err = AtMost(lifetime, named, func(most time.Duration) error {
		granted, spec.Timeout = most, Ceil(most, time.Second)
		made, err := c.CreateSandbox(ctx, spec)
		sbx = made.ID
		return err
	})
	return sbx, granted, err
}

// ExtendTimeout extends a sandbox's deadline until ctx ends.
func ExtendTimeout(ctx context.Context, c *Client, sbx string, lifetime time.Duration) {
	for waiting.Sleep(ctx, lifetime/4) {
		c.SetTimeout(ctx, sbx, lifetime) //nolint:errcheck // the next one may succeed, and the stream reports an end
	}
}
