//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// GVisor itself counts a sandbox's processes, in a cgroup of its own kernel: what the
// host counts are gVisor's threads. The cgroup is mounted below another mount, and its
// files belong to root: only root inside can change its limits, by mounting it again from
// a user namespace. (A cgroup namespace of gVisor's could prevent that, but makes gVisor's
// own call that writes the limit crash.) A sandbox made from memory uses the name of the
// sandbox whose memory was saved first.

// withGroup makes gVisor create that cgroup, where the bundle names one.
const withGroup = "--in-sandbox-cgroup=v2"

// userPIDs returns how many of most processes one user may have; gVisor applies it to root,
// too. The rest is reserved for the shim, which dies if it cannot create a thread. It is
// less than driver.ShimThreads because here it is subtracted from the limit, not added to
// it: most is the total, also where memory came from a sandbox with another limit.
func userPIDs(most uint32) uint64 {
	const shims = 24
	return uint64(most - min(most/4, shims))
}

type (
	groupFile struct {
		Controller string `json:"controller"`
		Path       string `json:"path"`
		Name       string `json:"name"`
	}
	groupOp struct {
		File  groupFile `json:"file"`
		Value string    `json:"value,omitempty"`
	}
	groupArg struct {
		Args []groupOp `json:"args"`
	}
	groupResults struct {
		Results []struct {
			Value   string `json:"value"`
			IsError bool   `json:"is_error"`
		} `json:"results"`
	}
)

// limitPIDs limits how many processes and threads the sandbox may have.
func (b *instance) limitPIDs(ctx context.Context, inner string, most uint32) error {
	_, err := b.control.group(ctx, "Cgroups.WriteControlFiles", groupOp{groupFile{"pids", inner, "pids.max"}, strconv.Itoa(int(most))})
	if err == nil {
		return nil
	}
	err = tasks{b}.settle(err)
	select {
	case <-b.Done():
		return live.ErrGone
	default:
		return err
	}
}

// countTimeout bounds gVisor's response: the caller has other sandboxes to measure.
const countTimeout = 200 * time.Millisecond

// processes returns how many processes the sandbox has, or had at the last query: the
// query costs CPU, and a paused sandbox does not respond. It does not wait for a
// transition in progress. 0: never determined.
func (b *instance) processes(ctx context.Context) uint32 {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	if state, err := b.r.recorded(); err == nil && state == running {
		if n, err := b.countPIDs(ctx); err == nil {
			b.counted.Store(n)
		}
	}
	return b.counted.Load()
}

func (b *instance) countPIDs(ctx context.Context) (uint32, error) {
	c, err := readConfig(b.r.in(configFile))
	if err != nil {
		return 0, err
	}
	count, err := b.control.group(ctx, "Cgroups.ReadControlFiles", groupOp{File: groupFile{"pids", c.Linux.Cgroup, "pids.current"}})
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 32)
	return uint32(n), err
}

func (c *control) group(ctx context.Context, method string, op groupOp) (string, error) {
	var got groupResults
	if err := c.call(ctx, method, groupArg{[]groupOp{op}}, &got); err != nil {
		return "", err
	}
	if len(got.Results) != 1 {
		return "", errors.New(method + ": response to another request")
	}
	if got.Results[0].IsError {
		return "", fmt.Errorf("%s: %s: %.1000s", method, op.File.Name, got.Results[0].Value)
	}
	return got.Results[0].Value, nil
}
