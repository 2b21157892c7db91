package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/waiting"
)

// printer prints the time every 10 ms. It is Perl because every Debian has it and the
// shell needs twice the CPU.
const printer = `exec perl -MTime::HiRes=time,sleep -e '$|=1; for(;;){printf "%.6f\n",time; sleep .01}'`

// arrival is the time for all readers to connect; it is not measured.
const arrival = time.Second

// delays collects delivery times of lines.
type delays struct {
	mu    sync.Mutex
	all   []time.Duration
	lines int // also those that are not measured
}

// watch reads a printer's record until ctx ends and collects the delivery time of each
// line. Lines printed while the readers connect are not counted.
func (d *delays) watch(ctx context.Context, c *client.Client, id string) error {
	l, err := c.Events(ctx, id, 0, true)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer l.Close()
	begun := time.Now().Add(arrival)
	var mine []time.Duration
	lines := 0
	defer func() {
		d.mu.Lock()
		d.all, d.lines = append(d.all, mine...), d.lines+lines
		d.mu.Unlock()
	}()
	var e client.Event
	for {
		if err := l.Next(&e); err != nil {
			return unlessEnded(ctx, err)
		}
		switch e.Type {
		case "end":
			return fmt.Errorf("the printer ended: %s", e.Line)
		case "stderr":
			return fmt.Errorf("the printer: %s", e.Bytes())
		case "stdout":
		default:
			continue
		}
		now := time.Now()
		for line := range bytes.Lines(e.Bytes()) {
			lines++
			if at, ok := epoch(string(bytes.TrimSpace(line))); ok && at.After(begun) {
				mine = append(mine, now.Sub(at))
			}
		}
	}
}

// unlessEnded returns err, or nil if ctx ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the benchmark is over: the error is that of its end
	}
	return err
}

// epoch parses seconds since the epoch with a fraction, after a point or a comma.
func epoch(s string) (time.Time, bool) {
	sec, frac, ok := strings.Cut(strings.Replace(s, ",", ".", 1), ".")
	whole, err := strconv.ParseInt(sec, 10, 64)
	micro, err2 := strconv.ParseInt(frac, 10, 64)
	return time.Unix(whole, micro*1000), ok && len(frac) == 6 && err == nil && err2 == nil
}

func (b *bench) print(ctx context.Context) (string, error) {
	return b.c.Start(ctx, b.sbx, &client.Command{Cmd: "/bin/sh", Args: []string{"-c", printer}, Envs: map[string]string{"LC_ALL": "C"}})
}

// manyCommands runs many printers at once, each with a reader.
func (b *bench) manyCommands(ctx context.Context) error {
	var ids []string
	defer func() { b.killAll(ctx, ids) }()
	for range b.f.commands {
		id, err := b.print(ctx)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	limited, cancel := b.limit(ctx)
	defer cancel()
	var d delays
	var g errgroup.Group
	before, known := b.server.usage()
	for _, id := range ids {
		g.Go(func() error { return d.watch(limited, b.c, id) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.costs(before, known, d.lines)
	b.add("lines", float64(len(d.all))/b.f.seconds, "lines/s")
	b.spread(fmt.Sprintf("delivery of %d", b.f.commands), d.all)
	return nil
}

// manyReaders runs one printer with many readers. Each number of readers gets a new
// printer, so that its record is short and quickly replayed.
func (b *bench) manyReaders(ctx context.Context) error {
	for _, n := range b.f.readers {
		if err := b.readers(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) readers(ctx context.Context, n int) error {
	id, err := b.print(ctx)
	if err != nil {
		return err
	}
	defer b.killAll(ctx, []string{id})
	limited, cancel := b.limit(ctx)
	defer cancel()
	var d delays
	var g errgroup.Group
	for range n {
		g.Go(func() error { return d.watch(limited, b.c, id) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.spread(fmt.Sprintf("delivery to %d", n), d.all)
	return nil
}

func (b *bench) killAll(ctx context.Context, ids []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), client.CallTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(16)
	for _, id := range ids {
		g.Go(func() error { return b.c.Signal(ctx, id, sigKill) })
	}
	if err := g.Wait(); err != nil {
		b.Notef("kill: %v", err)
	}
}

// idleTails opens many idle streams, as bare connections to keep the client's own memory
// small.
func (b *bench) idleTails(ctx context.Context) error {
	before, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server's process is unknown: set --pid")
	}
	id, err := b.c.Start(ctx, b.sbx, &client.Command{Cmd: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		return err
	}
	defer b.killAll(ctx, []string{id})
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	begun := time.Now()
	for range b.f.tails {
		conn, err := b.tail1(ctx, id)
		if err != nil {
			return fmt.Errorf("after %d tails: %w", len(open), err)
		}
		open = append(open, conn)
	}
	took := time.Since(begun)
	after, ok := b.settled(ctx)
	if !ok {
		return errors.New("the server exited")
	}
	b.add("tails", float64(len(open)), "")
	b.add("to open one", millis(took)/float64(len(open)), "ms")
	b.add("server memory a tail", (after.rss-before.rss)*1024/float64(len(open)), "KiB")
	b.add("server memory", after.rss, "MiB")
	return nil
}

// settled returns the server's usage once its memory is stable, or at the end of the
// scenario's time: earlier work leaves garbage.
func (b *bench) settled(ctx context.Context) (usage, bool) {
	ctx, cancel := b.limit(ctx)
	defer cancel()
	const still = 0.25 // MiB
	for {
		before, ok := b.server.usage()
		if !ok || !waiting.Sleep(ctx, time.Second) {
			return before, ok
		}
		after, ok := b.server.usage()
		if !ok || math.Abs(after.rss-before.rss) < still {
			return after, ok
		}
	}
}

// tail1 opens one tail and reads it up to the start event.
func (b *bench) tail1(ctx context.Context, id string) (net.Conn, error) {
	u, err := url.Parse(b.c.Base())
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	req := "GET " + client.ProcessPath(id, "/events?after=0&follow=1") + " HTTP/1.1\r\nHost: " + u.Host +
		"\r\nX-API-KEY: " + b.c.APIKey() + "\r\nKeepalive-Ping-Interval: 3600\r\n\r\n"
	if _, err := conn.Write([]byte(req)); err != nil {
		return conn, err
	}
	conn.SetReadDeadline(time.Now().Add(client.CallTimeout))
	var buf [8 << 10]byte
	have := 0
	for !bytes.Contains(buf[:have], []byte(`"type":"start"`)) {
		n, err := conn.Read(buf[have:])
		if have += n; err != nil {
			return conn, fmt.Errorf("%w after %q", err, buf[:have])
		}
	}
	return conn, nil
}
