package tunnel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/tunnel"
)

// tunnels returns a service's tunnels, and serves those to host h with accept.
func tunnels(t testing.TB, srv *eventstest.Server, accept func(*mux.Stream)) (out *tunnel.Dialer, stop func()) {
	t.Helper()
	there := eventstest.Open(t, srv)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { there.ServeTunnels(ctx, "h", accept) })
	out = eventstest.Open(t, srv).Tunnels()
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(func() {
		out.Close()
		stop()
	})
	return out, stop
}

func echoStream(s *mux.Stream) {
	s.Accept()
	go func() {
		io.Copy(s, s)
		s.Close()
	}()
}

func dial(t testing.TB, out *tunnel.Dialer, target string) *mux.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := out.Open(ctx, "h", 1, target)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTunnelsCarryStreams(t *testing.T) {
	out, _ := tunnels(t, eventstest.Start(t), echoStream)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			want := make([]byte, 3<<20)
			rand.Read(want)
			s := dial(t, out, "echo")
			go func() {
				s.Write(want)
				s.CloseWrite()
			}()
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
			}
			s.Close()
		})
	}
	wg.Wait()
}

func TestARejectedStreamReturnsTheReason(t *testing.T) {
	out, _ := tunnels(t, eventstest.Start(t), func(s *mux.Stream) {
		s.Abort(kind.Newf(kind.NotFound, "", "", "no %s", s.Target()))
	})
	_, err := out.Open(t.Context(), "h", 1, "sandbox")
	if !kind.Is(err, kind.NotFound) || kind.Message(err) != "no sandbox" {
		t.Errorf("got %v", err)
	}
}

// Streams to one sandbox, open or waiting, do not block those to another.
func TestASandboxCannotUseUpTheStreamsOfAnother(t *testing.T) {
	out, _ := tunnels(t, eventstest.Start(t), echoStream)
	const each = 128
	for i := range each {
		dial(t, out, "greedy:"+strconv.Itoa(8000+i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 9 * each {
		wg.Go(func() {
			if _, err := out.Open(ctx, "h", 1, "greedy:files"); !kind.Is(err, kind.Exhausted) {
				t.Errorf("one more: %v", err)
			}
		})
	}
	for range each {
		dial(t, out, "modest:80")
	}
	cancel()
	wg.Wait()
	dial(t, out, "third:80").Close()
}

// window returns the sum of the grants in the frames of a tunnel's end.
func window(t *testing.T, frames []byte) (n int) {
	t.Helper()
	const open, window = 128, 129
	for len(frames) > 0 {
		ty, payload, rest, ok := mux.Split(frames)
		if !ok || ty != open && ty != window {
			t.Fatalf("%.20x is not an Open or a Window", frames)
		}
		n += int(binary.LittleEndian.Uint32(payload[4:]))
		frames = rest
	}
	return n
}

// Whatever the other end does, the data that all streams of a tunnel may send without being
// read is bounded.
func TestATunnelStaysWithinItsBudget(t *testing.T) {
	const each, all, budget = 128, 64 * 128, 256 << 20
	target := func(i int) string { return strconv.Itoa(i/each) + ":80" }
	served := tunnel.TunnelMux(mux.Config{Even: true, Accept: (*mux.Stream).Accept})
	opened := tunnel.TunnelMux(mux.Config{})
	ours, theirs := 0, 0
	var wg sync.WaitGroup
	for i := range uint32(all) {
		id := binary.LittleEndian.AppendUint32(nil, 1+2*i)
		if err := served.Handle(128, append(append(id[:4:4], 0, 0, 0, 0), target(int(i))...)); err != nil {
			t.Fatal(err)
		}
		theirs += window(t, served.Append(nil, 0))
		wg.Go(func() {
			if _, err := opened.Open(t.Context(), target(int(i))); err != nil {
				t.Error(err)
			}
		})
		for !opened.Pending() {
			runtime.Gosched()
		}
		ours += window(t, opened.Append(nil, 0))
		if err := opened.Handle(129, append(id[:4:4], 0, 0, 0, 0)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	if served.Count() != all || opened.Count() != all || max(ours, theirs) > budget {
		t.Errorf("%d and %d streams may send %d and %d MiB, want %d at most", served.Count(), opened.Count(), theirs>>20, ours>>20, budget>>20)
	}
}

func TestAMissingHostIsUnavailable(t *testing.T) {
	out := eventstest.Open(t, eventstest.Start(t)).Tunnels()
	defer out.Close()
	out.Hurry(100) // no later attempt is answered either
	if _, err := out.Open(t.Context(), "nobody", 1, ""); !kind.Is(err, kind.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// If one host is slow to answer, callers that need another host, or that gave up, do not
// wait.
func TestASlowHostDoesNotDelayTunnelsToOthers(t *testing.T) {
	srv := eventstest.Start(t)
	out, _ := tunnels(t, srv, echoStream)
	js := eventstest.JetStream(t, srv)
	stream, err := js.Stream(t.Context(), "TUNNEL")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Subjects = []string{"tunnel.h", "tunnel.h.>"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	requests, err := js.Conn().SubscribeSync("tunnel.slow") // never answered
	if err == nil {
		err = js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	knocked := make(chan struct{})
	go func() {
		defer close(knocked)
		out.Reach(t.Context(), "slow")
	}()
	if _, err := requests.NextMsg(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	noWait := func() {
		t.Helper()
		select {
		case <-knocked:
			t.Error("it waited for the slow host")
		default:
		}
	}
	if err := out.Reach(t.Context(), "h"); err != nil {
		t.Errorf("another host: %v", err)
	}
	noWait()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := out.Reach(gone, "slow"); !kind.Is(err, kind.Unavailable) {
		t.Errorf("a canceled caller: %v", err)
	}
	noWait()
	dial(t, out, "echo").Close()
	<-knocked
}

// A host that stops aborts its streams at once, with an error. Its next run is reachable at
// once.
func TestAStoppedHostAbortsItsStreams(t *testing.T) {
	srv := eventstest.Start(t)
	out, stop := tunnels(t, srv, echoStream)
	out.Hurry(10) // the next run may receive only a retry
	s := dial(t, out, "echo")
	s.Write([]byte("x"))
	if _, err := s.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	s.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := s.Read(make([]byte, 1)); !kind.Is(err, kind.Unavailable) {
		t.Errorf("got %v", err)
	}
	next, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	log := eventstest.Open(t, srv)
	go func() {
		defer close(done)
		log.ServeTunnels(next, "h", echoStream)
	}()
	defer func() {
		cancel()
		<-done
	}()
	ctx, stopAsking := context.WithTimeout(t.Context(), 20*time.Second)
	defer stopAsking()
	for {
		s, err := out.Open(ctx, "h", 2, "echo")
		if err == nil {
			s.Close()
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// An end that closes while its last message is in flight or abandoned has closed: no
// message is reported as lost.
func TestAClosedEndLeavesNoHole(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	for i, stored := range []bool{true, false} {
		err := log.TunnelHearsAfter(t.Context(), "tunnel.h.t"+strconv.Itoa(i), stored)
		if err == nil || !strings.Contains(err.Error(), "the other end of the tunnel is gone") {
			t.Errorf("the last message stored: %v: heard %v", stored, err)
		}
	}
}

// A killed host sends nothing more. While NATS works, that is detected well before its
// lease expires.
func TestStreamsOfASilentHostAreAborted(t *testing.T) {
	srv := eventstest.Start(t)
	there, here := eventstest.Open(t, srv), eventstest.Open(t, srv)
	there.HurryTunnels(10)
	here.HurryTunnels(10)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { there.ServeTunnels(ctx, "h", echoStream) })
	out := here.Tunnels()
	defer out.Close()
	s := dial(t, out, "echo")
	s.Write([]byte("x"))
	if _, err := s.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	there.Close()
	s.SetReadDeadline(time.Now().Add(12 * time.Second))
	if _, err := s.Read(make([]byte, 1)); !kind.Is(err, kind.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// NATS keeps tunnels in memory. When it crashes, streams end with an error, and new ones
// can be opened as soon as it is back.
func TestARestartOfNATSAbortsStreams(t *testing.T) {
	srv := eventstest.Start(t)
	out, _ := tunnels(t, srv, echoStream)
	s := dial(t, out, "echo")
	sent := make(chan int, 1)
	go func() {
		n := 0
		for {
			k, err := s.Write(make([]byte, 1000))
			if n += k; err != nil {
				sent <- n
				return
			}
		}
	}()
	got := 0
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if got < 1<<20 && got+n >= 1<<20 {
			srv.Restart()
		}
		if got += n; err != nil {
			if errors.Is(err, io.EOF) {
				t.Errorf("io.EOF instead of an error after %d bytes", got)
			}
			break
		}
	}
	if n := <-sent; got > n {
		t.Errorf("%d bytes came back of %d", got, n)
	}
	again := dial(t, out, "echo")
	again.Write([]byte("y"))
	if _, err := again.Read(buf); err != nil {
		t.Errorf("after NATS is back: %v", err)
	}
}

func BenchmarkTunnel(b *testing.B) {
	out, _ := tunnels(b, eventstest.Start(b), func(s *mux.Stream) {
		s.Accept()
		go func() {
			buf := make([]byte, 64<<10)
			for {
				if _, err := s.Write(buf); err != nil {
					return
				}
			}
		}()
	})
	s := dial(b, out, "")
	buf := make([]byte, 32<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
}

// BenchmarkTunnelEcho measures the round trip of a byte to a host.
func BenchmarkTunnelEcho(b *testing.B) {
	out, _ := tunnels(b, eventstest.Start(b), echoStream)
	s := dial(b, out, "echo")
	buf := make([]byte, 1)
	for b.Loop() {
		s.Write(buf)
		if _, err := io.ReadFull(s, buf); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
}
