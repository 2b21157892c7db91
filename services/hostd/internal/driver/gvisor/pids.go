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

// A sandbox's processes are counted by gVisor itself, in a cgroup of its own kernel:
// what the host counts are gVisor's threads. It is mounted below something else, and
// its files are root's: only root inside can change its limits, from a namespace of
// users in which he mounts it again. (gVisor could refuse that too, by a namespace of
// cgroups, but then its own call for writing the limit is a fault of memory.) In what was
// made from memory, it has the name of the sandbox that the memory was of first.

// withGroup has gVisor make that cgroup, where the bundle names one.
const withGroup = "--in-sandbox-cgroup=v2"

// userPIDs is how many of most one user may have; gVisor holds root to it, too. The
// rest is the shim's, which dies where it wants a thread and gets none. It is less than
// driver.ShimThreads because here it is taken from the limit, not added to it: most is all
// that there may be together, also where memory was kept of a place with another limit.
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

// limitPIDs bounds how many processes and threads the sandbox may have.
func (b *box) limitPIDs(ctx context.Context, inner string, most uint32) error {
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

// countTimeout is for gVisor's answer: who measures measures others, too.
const countTimeout = 200 * time.Millisecond

// processes tells how many the sandbox has, or had when it was asked last: to answer is
// work, and what stands does none. It does not wait for who stops or starts it. 0: it has
// never told.
func (b *box) processes(ctx context.Context) uint32 {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	if noted, err := b.r.noted(); err == nil && noted == runs {
		if n, err := b.countPIDs(ctx); err == nil {
			b.counted.Store(n)
		}
	}
	return b.counted.Load()
}

func (b *box) countPIDs(ctx context.Context) (uint32, error) {
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
		return "", errors.New(method + ": an answer to another question")
	}
	if got.Results[0].IsError {
		return "", fmt.Errorf("%s: %s: %.1000s", method, op.File.Name, got.Results[0].Value)
	}
	return got.Results[0].Value, nil
}
