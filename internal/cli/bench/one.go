package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/waiting"
)

// Kinds of events that connectStart reports.
const (
	eventStart = 1
	eventData  = 2
	eventEnd   = 3
)

// warmUp is the number of starts that are not counted.
const warmUp = 20

// startTrue measures the smallest command.
func (b *bench) startTrue(ctx context.Context) error {
	first, end, err := b.starts(ctx, "/bin/true", nil, eventStart)
	b.spread("first event", first)
	b.spread("end", end)
	return err
}

// startLogin measures a login shell, which the SDKs run.
func (b *bench) startLogin(ctx context.Context) error {
	first, _, err := b.starts(ctx, "/bin/bash", []string{"-l", "-c", "echo x"}, eventData)
	b.spread("first byte", first)
	return err
}

// starts runs a command repeatedly and returns the times to the first event of a kind and
// to the end.
func (b *bench) starts(ctx context.Context, cmd string, args []string, kind int) (first, end []time.Duration, err error) {
	s := b.share(1)
	s.pause = b.f.pause
	before, known := b.server.usage()
	first, end, err = b.someStarts(ctx, s, cmd, args, kind)
	b.costs(before, known, len(first)+warmUp)
	return first, end, err
}

// sampling bounds the number and the duration of measurements. They start at the interval
// every, or, if it is 0, one after another with a pause between two.
type sampling struct {
	count int
	most  time.Duration
	every time.Duration
	pause time.Duration
}

// share returns one of n equal parts of a scenario's bounds.
func (b *bench) share(n int) sampling {
	return sampling{count: max(b.f.count/n, 1), most: time.Duration(b.f.seconds * float64(time.Second) / float64(n))}
}

// someStarts is starts with explicit bounds.
func (b *bench) someStarts(ctx context.Context, s sampling, cmd string, args []string, kind int) (first, end []time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, s.most)
	defer cancel()
	next := time.Now()
	for i := 0; i < s.count+warmUp && limited.Err() == nil; i++ {
		wait := s.pause
		if s.every > 0 {
			wait = time.Until(next)
		}
		if !waiting.Sleep(limited, wait) {
			break
		}
		begun := time.Now()
		next = begun.Add(s.every)
		var toFirst, toEnd time.Duration
		err := connectStart(ctx, b.c, b.sbx, cmd, args, func(k, _ int) {
			if k == kind && toFirst == 0 {
				toFirst = time.Since(begun)
			}
			if k == eventEnd {
				toEnd = time.Since(begun)
			}
		})
		if err != nil {
			return first, end, err
		}
		if i >= warmUp {
			first, end = append(first, toFirst), append(end, toEnd)
		}
	}
	return first, end, nil
}

// rate measures completed commands per second.
func (b *bench) rate(ctx context.Context) error {
	for _, n := range []int{1, 4, 16} {
		limited, cancel := b.limit(ctx)
		var done atomic.Int64
		var g errgroup.Group
		begun := time.Now()
		for range n {
			g.Go(func() error {
				for limited.Err() == nil && done.Load() < int64(b.f.count*n) {
					if err := connectStart(ctx, b.c, b.sbx, "/bin/true", nil, func(int, int) {}); err != nil {
						return err
					}
					done.Add(1)
				}
				return nil
			})
		}
		err := g.Wait()
		cancel()
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("%d in flight", n), float64(done.Load())/time.Since(begun).Seconds(), "commands/s")
	}
	return nil
}

func (b *bench) streamLines(ctx context.Context) error {
	return b.stream(ctx, fmt.Sprintf("yes 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ- | head -c %dM", b.f.mib))
}

func (b *bench) streamBulk(ctx context.Context) error {
	return b.stream(ctx, bulkScript(b.f.mib))
}

func bulkScript(mib int) string { return fmt.Sprintf("head -c %dM /dev/zero | tr '\\0' x", mib) }

// stream measures one process that prints as fast as it is read.
func (b *bench) stream(ctx context.Context, script string) error {
	before, known := b.server.usage()
	begun, got := time.Now(), 0
	err := connectStart(ctx, b.c, b.sbx, "/bin/sh", []string{"-c", script}, func(_, n int) { got += n })
	took := time.Since(begun)
	if err != nil {
		return err
	}
	if want := b.f.mib << 20; got != want {
		return fmt.Errorf("received %d bytes of %d", got, want)
	}
	b.add("throughput", float64(got)/1e6/took.Seconds(), "MB/s")
	if after, ok := b.server.usage(); ok && known {
		b.add("server CPU", (after.cpu - before.cpu).Seconds(), "s")
		b.add("server peak memory", after.peak, "MiB")
	}
	return nil
}

// echo measures key presses at a terminal in raw mode.
func (b *bench) echo(ctx context.Context) error {
	id, err := b.c.Start(ctx, b.sbx, &client.Command{
		Cmd: "/bin/sh", Args: []string{"-c", "stty raw -echo; printf R; exec cat"}, PTY: &client.Winsize{Cols: 80, Rows: 24},
	})
	if err != nil {
		return err
	}
	defer b.c.Signal(ctx, id, sigKill) //nolint:errcheck // the sandbox ends soon
	l, err := b.c.Events(ctx, id, 0, true)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := until(l, "pty"); err != nil {
		return err
	}
	limited, cancel := b.limit(ctx)
	defer cancel()
	before, known := b.server.usage()
	var all []time.Duration
	for i := 0; i < b.f.count && limited.Err() == nil && b.f.paused(limited); i++ {
		begun := time.Now()
		sent := make(chan error, 1)
		go func() { sent <- b.c.Input(ctx, id, []byte{'a' + byte(i%26)}, false) }()
		if err := until(l, "pty"); err != nil {
			return err
		}
		took := time.Since(begun)
		if err := <-sent; err != nil {
			return err
		}
		all = append(all, took)
	}
	b.costs(before, known, len(all))
	b.spread("echo", all)
	return nil
}

const sigKill = 9

// until reads through the next event of a type.
func until(l *client.Lines, kind string) error {
	var e client.Event
	for {
		if err := l.Next(&e); err != nil {
			return err
		}
		switch e.Type {
		case kind:
			return nil
		case "end":
			return fmt.Errorf("the process ended before %s: %s", kind, e.Line)
		}
	}
}

// resume reads one event after a random one, from each gateway in turn.
func (b *bench) resume(ctx context.Context) error {
	id, err := b.c.Start(ctx, b.sbx, &client.Command{
		Cmd: fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done", b.f.events),
	})
	if err != nil {
		return err
	}
	var last uint64
	if err := b.c.Follow(ctx, id, 0, b.Notef, func(e *client.Event) error { last = e.Seq; return nil }); err != nil {
		return err
	}
	b.add("events stored", float64(last), "")
	limited, cancel := b.limit(ctx)
	defer cancel()
	var all []time.Duration
	for i := 0; i < b.f.count && limited.Err() == nil; i++ {
		b.c.NextGateway()
		q := url.Values{"follow": {"0"}, "limit": {"1"}, "after": {strconv.FormatUint(rand.Uint64N(last), 10)}}
		begun := time.Now()
		l, err := b.c.Lines(ctx, &client.Request{Method: "GET", Path: client.ProcessPath(id, "/events"), Query: q})
		if err != nil {
			return err
		}
		_, err = l.Raw()
		took := time.Since(begun)
		l.Close()
		if err != nil {
			return err
		}
		all = append(all, took)
	}
	b.spread("first byte", all)
	return nil
}
