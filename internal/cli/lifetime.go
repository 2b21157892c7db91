package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ceil is d in units, away from 0: what is left of one must not become 0, which is
// never for a process, and now for a sandbox.
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

// atMost calls f with a time to live, and once more with what the gateway allows, if
// that is less. It is for defaults of ours: who names a time is to hear that it is
// too long.
func atMost(life time.Duration, named bool, f func(time.Duration) error) error {
	err := f(life)
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

// createFor makes a sandbox that lives for life, or for as long as the gateway allows, if
// that is less and life is not named by the user; it says which. See prolong.
func (c *client) createFor(ctx context.Context, spec sandboxSpec, life time.Duration, named bool) (sbx string, granted time.Duration, err error) {
	err = atMost(life, named, func(most time.Duration) error {
		granted, spec.Timeout = most, ceil(most, time.Second)
		made, err := c.createSandbox(ctx, spec)
		sbx = made.ID
		return err
	})
	return sbx, granted, err
}
