package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/cli/backendclient"
)

// terminal connects to the session's terminal.
func (b *backendBench) terminal(ctx context.Context) (*backendclient.Conn, error) {
	return b.api.Dial(ctx, "/stream/session/"+b.session+"/pty")
}

// outputs reads the output of a terminal until it contains a text.
func outputs(c *backendclient.Conn, text string) error {
	var tail []byte
	for {
		out, err := c.Output()
		if err != nil {
			return err
		}
		if tail = append(tail, out...); bytes.Contains(tail, []byte(text)) {
			return nil
		}
		tail = tail[max(0, len(tail)-len(text)):]
	}
}

// echo measures key presses at a terminal in raw mode.
func (b *backendBench) echo(ctx context.Context) error {
	c, err := b.terminal(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Type([]byte("stty raw -echo; printf '%s' REA''DY; exec cat\r")); err != nil {
		return err
	}
	if err := outputs(c, "READY"); err != nil {
		return err
	}
	limited, cancel := b.limit(ctx)
	defer cancel()
	var all []time.Duration
	for i := 0; i < b.f.count && limited.Err() == nil && b.f.paused(limited); i++ {
		begun := time.Now()
		if err := c.Type([]byte{'a' + byte(i%26)}); err != nil {
			return err
		}
		if _, err := c.Output(); err != nil {
			return err
		}
		all = append(all, time.Since(begun))
	}
	b.spread("echo", all)
	return nil
}

// returns measures how long a client that returns to a terminal with 1 MiB of history waits for its
// screen.
func (b *backendBench) returns(ctx context.Context) error {
	c, err := b.terminal(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Type([]byte("PS1=; seq -w 0 149999 | head -c 1048576; echo; echo E''ND\r")); err != nil {
		return err
	}
	if err := outputs(c, "END\r\n"); err != nil {
		return err
	}
	limited, cancel := b.limit(ctx)
	defer cancel()
	var upgraded, shown []time.Duration
	for i := 0; i < b.f.count && limited.Err() == nil && b.f.paused(limited); i++ {
		begun := time.Now()
		back, err := b.terminal(ctx)
		if err != nil {
			return err
		}
		upgraded = append(upgraded, time.Since(begun))
		if err := outputs(back, "END\r\n"); err != nil {
			return err
		}
		shown = append(shown, time.Since(begun))
		back.Close()
	}
	b.spread("upgrade", upgraded)
	b.spread("screen", shown)
	return nil
}

// clock prints the time in nanoseconds in lines of 10,000 bytes, a hundred per second.
const clock = `python3 -u -c "
import sys, time
end = time.time() + SECONDS
while time.time() < end:
    sys.stdout.write('@%d' % time.time_ns() + '.' * 9977 + '\\n')
    sys.stdout.flush()
    time.sleep(0.01)
print('E' + 'ND')"` + "\r"

// viewers measures the delay of output of 1 MB/s at many viewers of one terminal.
func (b *backendBench) viewers(ctx context.Context) error {
	var g errgroup.Group
	var mu sync.Mutex
	var all []time.Duration
	var first *backendclient.Conn
	for i := range b.f.viewers {
		c, err := b.terminal(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if i == 0 {
			first = c
			if err := c.Type([]byte("stty -echo; PS1=; echo REA''DY\r")); err != nil {
				return err
			}
			if err := outputs(c, "READY"); err != nil {
				return err
			}
		}
		g.Go(func() error {
			found, err := lineDelays(c)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			return err
		})
	}
	script := bytes.ReplaceAll([]byte(clock), []byte("SECONDS"), []byte(strconv.FormatFloat(b.f.seconds, 'f', 1, 64)))
	if err := first.Type(script); err != nil {
		return err
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.spread(fmt.Sprintf("%d viewers", b.f.viewers), all)
	return nil
}

// lineDelays reads the output of clock to its end, and returns the delays of its lines' beginnings.
func lineDelays(c *backendclient.Conn) (all []time.Duration, err error) {
	var tail []byte
	for {
		out, err := c.Output()
		if err != nil {
			return all, err
		}
		now := time.Now().UnixNano()
		const digits = 19
		for rest := slices.Concat(tail, out); ; {
			at := bytes.IndexByte(rest, '@')
			if at < 0 || len(rest) < at+1+digits {
				if at < 0 {
					if bytes.Contains(rest, []byte("END")) {
						return all, nil
					}
					at = max(0, len(rest)-len("END"))
				}
				tail = bytes.Clone(rest[at:])
				break
			}
			if sent, err := strconv.ParseInt(string(rest[at+1:at+1+digits]), 10, 64); err == nil {
				all = append(all, time.Duration(now-sent))
			}
			rest = rest[at+1+digits:]
		}
	}
}
