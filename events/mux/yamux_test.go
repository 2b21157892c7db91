package mux_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/mux"
)

// BenchmarkYamux compares the package with github.com/hashicorp/yamux on both legs of a byte
// stream: the socket between a host and a sandbox's shim, and the tunnel through NATS between
// a gateway and a host. docs/performance.md has the results. Each row also reports the CPU
// time of the process, which contains both ends and the NATS server, because that varies less
// than the time on a busy machine.
func BenchmarkYamux(b *testing.B) {
	legs := []struct {
		name    string
		connect connect
	}{
		{"socket/mux", muxOverSocket}, {"socket/yamux", yamuxOverSocket},
		{"tunnel/mux", muxOverTunnel}, {"tunnel/yamux", yamuxOverTunnel},
	}
	loads := []struct {
		name string
		run  func(b *testing.B, c connect)
	}{
		{"bulk", func(b *testing.B, c connect) { bulk(b, c, 1) }},
		{"bulk16", func(b *testing.B, c connect) { bulk(b, c, 16) }},
		{"echo", func(b *testing.B, c connect) { echoes(b, c, 1) }},
		{"echo16", func(b *testing.B, c connect) { echoes(b, c, 16) }},
		{"request", requests},
	}
	for _, load := range loads {
		for _, leg := range legs {
			b.Run(load.name+"/"+leg.name, func(b *testing.B) { load.run(b, leg.connect) })
		}
	}
}

// connect connects two ends of a channel until the benchmark ends. serve is called in a
// goroutine with each stream that arrives at the far end; open opens one at the near end.
type connect func(b *testing.B, serve func(net.Conn)) (open func() (net.Conn, error))

const (
	chunk       = 32 << 10
	echoSize    = 64
	requestSize = 200
	answerSize  = 4 << 10
)

// measure starts the timer, and reports the CPU time when the benchmark ends.
func measure(b *testing.B) {
	before := cpuTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.Cleanup(func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") })
}

func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// bulk sends chunks through n streams at once until they are read at the other end.
func bulk(b *testing.B, c connect, n int) {
	var read sync.WaitGroup
	read.Add(n)
	open := c(b, func(s net.Conn) {
		defer read.Done()
		if _, err := io.Copy(io.Discard, s); err != nil {
			b.Error(err)
		}
		s.Close()
	})
	all := openAll(b, open, n)
	b.SetBytes(chunk)
	measure(b)
	var written sync.WaitGroup
	for i, s := range all {
		written.Go(func() {
			data := make([]byte, chunk)
			for range (b.N + n - 1 - i) / n {
				if _, err := s.Write(data); err != nil {
					b.Error(err)
					return
				}
			}
			closeWrite(s)
		})
	}
	written.Wait()
	read.Wait()
	b.StopTimer()
}

// echoes sends small messages through n streams at once, each after the echo of the one before.
func echoes(b *testing.B, c connect, n int) {
	open := c(b, func(s net.Conn) {
		io.Copy(s, s)
		s.Close()
	})
	all := openAll(b, open, n)
	measure(b)
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			data := make([]byte, echoSize)
			for range (b.N + n - 1 - i) / n {
				_, err := s.Write(data)
				if err == nil {
					_, err = io.ReadFull(s, data)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	for _, s := range all {
		s.Close()
	}
}

// requests opens one stream after the other, and sends a request and reads its answer on each.
func requests(b *testing.B, c connect) {
	open := c(b, func(s net.Conn) {
		_, err := io.ReadFull(s, make([]byte, requestSize))
		if err == nil {
			_, err = s.Write(make([]byte, answerSize))
		}
		if err != nil {
			b.Error(err)
		}
		s.Close()
	})
	measure(b)
	request := make([]byte, requestSize)
	for range b.N {
		s, err := open()
		if err != nil {
			b.Fatal(err)
		}
		if _, err = s.Write(request); err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, s); n != answerSize || err != nil {
			b.Fatalf("read %d bytes: %v", n, err)
		}
		s.Close()
	}
	b.StopTimer()
}

func openAll(b *testing.B, open func() (net.Conn, error), n int) []net.Conn {
	all := make([]net.Conn, n)
	for i := range all {
		var err error
		if all[i], err = open(); err != nil {
			b.Fatal(err)
		}
	}
	return all
}

// closeWrite ends the writing; yamux's Close is no more than that.
func closeWrite(s net.Conn) {
	if s, ok := s.(interface{ CloseWrite() error }); ok {
		s.CloseWrite()
		return
	}
	s.Close()
}

// Settings of the product: link.Conn, shim.session and the tunnels of package events.
const (
	socketTurn, tunnelTurn       = 32 << 10, 192 << 10
	socketWindow, tunnelWindow   = 128 << 10, 256 << 10
	socketStreams, tunnelStreams = 128, 8192
)

func muxOverSocket(b *testing.B, serve func(net.Conn)) func() (net.Conn, error) {
	near, far := socketPair(b)
	return muxOver(b, serve, socketTurn, &frameConn{near}, &frameConn{far}, mux.Config{Window: socketWindow, MaxStreams: socketStreams})
}

func muxOverTunnel(b *testing.B, serve func(net.Conn)) func() (net.Conn, error) {
	near, far := tunnelPair(b)
	return muxOver(b, serve, tunnelTurn, near, far, mux.Config{Window: tunnelWindow, MaxStreams: tunnelStreams, MaxEach: 128, Budget: 256 << 20})
}

func yamuxOverSocket(b *testing.B, serve func(net.Conn)) func() (net.Conn, error) {
	near, far := socketPair(b)
	return yamuxOver(b, serve, near, far)
}

func yamuxOverTunnel(b *testing.B, serve func(net.Conn)) func() (net.Conn, error) {
	near, far := tunnelPair(b)
	return yamuxOver(b, serve, newByteConn(near), newByteConn(far))
}

// socketPair returns the ends of a unix socket.
func socketPair(b *testing.B) (near, far net.Conn) {
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("unix", ln.Addr().String()); err == nil {
		far, err = ln.Accept()
	}
	if err != nil {
		b.Fatal(err)
	}
	return near, far
}

// A carrier carries frames. receive calls handle with whole frames until the carrier is
// closed.
type carrier interface {
	send(frames []byte) error
	receive(handle func(t uint8, payload []byte) error) error
	Close() error
}

// muxOver connects two ends of the package with carriers.
func muxOver(b *testing.B, serve func(net.Conn), turn int, near, far carrier, cfg mux.Config) func() (net.Conn, error) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	run := func(c carrier, cfg mux.Config) *mux.Mux {
		e := newEnd(cfg)
		wg.Go(func() {
			c.receive(e.Handle)
			e.Break(net.ErrClosed)
		})
		wg.Go(func() {
			var buf []byte
			for {
				select {
				case <-e.wake:
				case <-done:
					return
				}
				for e.Pending() {
					if buf = e.Append(buf[:0], turn); c.send(buf) != nil {
						return
					}
				}
			}
		})
		return e.Mux
	}
	opens := cfg
	opens.Even, opens.MaxOpen, opens.MaxStreams = true, cfg.MaxStreams, 0
	cfg.Accept = func(s *mux.Stream) {
		s.Accept()
		go serve(s)
	}
	run(far, cfg)
	m := run(near, opens)
	b.Cleanup(func() {
		close(done)
		near.Close()
		far.Close()
		wg.Wait()
	})
	return func() (net.Conn, error) { return m.Open(b.Context(), "") }
}

// frameConn carries frames on a connection.
type frameConn struct{ net.Conn }

func (c *frameConn) send(frames []byte) error {
	_, err := c.Write(frames)
	return err
}

func (c *frameConn) receive(handle func(t uint8, payload []byte) error) error {
	r := bufio.NewReaderSize(c, 64<<10)
	var head [8]byte
	payload := make([]byte, mux.MaxFrame)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		p := payload[:binary.LittleEndian.Uint32(head[:])]
		if _, err := io.ReadFull(r, p); err != nil {
			return err
		}
		if err := handle(head[4], p); err != nil {
			return err
		}
	}
}

// tunnelEnd is one end of a tunnel as package events makes them: each direction is a subject
// of the stream of tunnels with one message in flight.
type tunnelEnd struct {
	ctx    context.Context
	cancel context.CancelFunc
	send1  func(ctx context.Context, data []byte) error
	next   func(ctx context.Context) ([]byte, error)
}

func (e *tunnelEnd) Close() error {
	e.cancel()
	return nil
}

func (e *tunnelEnd) send(frames []byte) error { return e.send1(e.ctx, frames) }

func (e *tunnelEnd) receive(handle func(t uint8, payload []byte) error) error {
	for {
		b, err := e.next(e.ctx)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			t, payload, rest, ok := mux.Split(b)
			if !ok {
				return mux.ErrProtocol
			}
			if err := handle(t, payload); err != nil {
				return err
			}
			b = rest
		}
	}
}

// tunnelPair returns the ends of a tunnel through a NATS server in this process.
func tunnelPair(b *testing.B) (near, far *tunnelEnd) {
	srv := eventstest.Start(b)
	eventstest.Open(b, srv) // creates the streams
	end := func(out, in string) *tunnelEnd {
		nc := eventstest.JetStream(b, srv).Conn()
		sub, err := nc.SubscribeSync("live.tunnel.bench." + in)
		if err != nil {
			b.Fatal(err)
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			b.Fatal(err)
		}
		if err := nc.Flush(); err != nil { // before the other end sends
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		return &tunnelEnd{ctx: ctx, cancel: cancel,
			send1: func(ctx context.Context, data []byte) error {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
				defer cancel()
				ack, err := nc.RequestWithContext(ctx, "tunnel.bench."+out, data)
				if err == nil && len(ack.Data) == 0 {
					err = errors.New("not stored")
				}
				return err
			},
			next: func(ctx context.Context) ([]byte, error) {
				m, err := sub.NextMsgWithContext(ctx)
				if err != nil {
					return nil, err
				}
				return m.Data, nil
			},
		}
	}
	return end("up", "down"), end("down", "up")
}

func yamuxOver(b *testing.B, serve func(net.Conn), near, far net.Conn) func() (net.Conn, error) {
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive, cfg.LogOutput, cfg.AcceptBacklog = false, io.Discard, tunnelStreams
	client, err := yamux.Client(near, cfg)
	if err != nil {
		b.Fatal(err)
	}
	server, err := yamux.Server(far, cfg)
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			s, err := server.Accept()
			if err != nil {
				return
			}
			go serve(s)
		}
	})
	b.Cleanup(func() {
		client.Close()
		server.Close()
		wg.Wait()
	})
	return client.Open
}

// byteConn is the tunnel as the connection that yamux needs. Like a tunnel it collects what
// is written while a message is in flight.
type byteConn struct {
	net.Conn // the methods that yamux does not call
	end      *tunnelEnd
	rest     []byte
	stopped  chan struct{}

	mu      sync.Mutex
	changed sync.Cond
	out     []byte
	closed  bool
}

func newByteConn(end *tunnelEnd) *byteConn {
	c := &byteConn{end: end, stopped: make(chan struct{})}
	c.changed.L = &c.mu
	go c.write()
	return c
}

func (c *byteConn) write() {
	defer close(c.stopped)
	var buf []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closed {
			c.changed.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		n := min(len(c.out), tunnelTurn)
		buf = append(buf[:0], c.out[:n]...)
		c.out = slices.Delete(c.out, 0, n)
		c.changed.Broadcast()
		c.mu.Unlock()
		if c.end.send(buf) != nil {
			return
		}
	}
}

func (c *byteConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) >= tunnelTurn && !c.closed {
		c.changed.Wait()
	}
	if c.closed {
		return 0, net.ErrClosed
	}
	c.out = append(c.out, p...)
	c.changed.Broadcast()
	return len(p), nil
}

func (c *byteConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		b, err := c.end.next(c.end.ctx)
		if err != nil {
			return 0, err
		}
		c.rest = b
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *byteConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	c.end.cancel()
	<-c.stopped
	return nil
}

func (c *byteConn) SetDeadline(time.Time) error      { return nil }
func (c *byteConn) SetReadDeadline(time.Time) error  { return nil }
func (c *byteConn) SetWriteDeadline(time.Time) error { return nil }
