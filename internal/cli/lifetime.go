package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ceil returns d in units, rounded away from 0: a fraction must not become 0, which means
// no limit for a process and now for a sandbox.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	switch rest := d % unit; {
	case rest > 0:
		n++
	case rest < 0:
		n--
	}
	return n
}

// atMost calls f with a timeout and, if the gateway allows only less, once more with
// that. A timeout that the user named is not reduced: its error is returned.
func atMost(lifetime time.Duration, named bool, f func(time.Duration) error) error {
	err := f(lifetime)
	var e *apiError
	if named || !errors.As(err, &e) || e.Status != http.StatusBadRequest {
		return err
	}
	var most int64 // seconds
	if _, serr := fmt.Sscanf(e.Message, "timeout cannot be greater than %d seconds", &most); serr != nil || most < 1 {
		return err
	}
	return f(time.Duration(most) * time.Second)
}

// createFor creates a sandbox with the timeout lifetime, reduced to the gateway's maximum
// unless the user named it, and returns the timeout granted. See prolong.
func (c *client) createFor(ctx context.Context, spec sandboxSpec, lifetime time.Duration, named bool) (sbx string, granted time.Duration, err error) {
	err = atMost(lifetime, named, func(most time.Duration) error {
		granted, spec.Timeout = most, ceil(most, time.Second)
		made, err := c.createSandbox(ctx, spec)
		sbx = made.ID
		return err
	})
	return sbx, granted, err
}
