package apps_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	client "github.com/fasthttp/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/gateway/internal/backendai/apps"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

const patience = time.Minute

// tunnel connects to a service, whose connections accept gets, through a log.
func tunnel(t testing.TB, cfg stream.Config, accept func(*mux.Stream)) *client.Conn {
	t.Helper()
	srv := eventstest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	there := eventstest.Open(t, srv)
	wg.Go(func() { there.ServeTunnels(ctx, "h", accept) })
	dialer := eventstest.Open(t, srv).Tunnels()
	streams := stream.New(cfg)
	endpoint := websocket.New(streams).Endpoint(websocket.Options{})
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/", func(c *fiber.Ctx) error {
		budget := streams.Budget("tenant")
		return endpoint.Upgrade(c, "tenant", websocket.Handler{Serve: func(ctx context.Context, conn *websocket.Conn) error {
			(&apps.Tunnel{
				Over: func() bool { return false },
				Conn: conn, Budget: budget, Active: func() {}, Slog: slog.New(slog.DiscardHandler),
				Open: func(ctx context.Context) (*mux.Stream, error) { return dialer.Open(ctx, "h", 1, "box:8000") },
			}).Serve(ctx)
			return nil
		}})
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, done := ln.Addr().String(), make(chan error, 1)
	go func() { done <- app.Listener(httpconn.Listen(ln)) }()
	t.Cleanup(func() {
		within, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		streams.Drain(within)
		app.ShutdownWithTimeout(patience)
		<-done
		dialer.Close()
		cancel()
		wg.Wait()
	})
	ws, _, err := client.DefaultDialer.Dial("ws://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	return ws
}

const (
	chunk  = 64 << 10
	much   = 256 << 20 // more than all buffers on the way hold
	bound  = 64 << 20  // more than the kernel's buffers and the windows
	waited = 2 * time.Second
)

// A client that reads nothing blocks the service, and then gets all that the service wrote.
func TestAClientThatReadsNothingBlocksTheService(t *testing.T) {
	wrote := make(chan int, 1)
	ws := tunnel(t, stream.Config{}, func(s *mux.Stream) {
		s.Accept()
		go func() {
			total := 0
			s.SetWriteDeadline(time.Now().Add(waited))
			for total < much {
				n, err := s.Write(bytes.Repeat([]byte{byte(total / chunk)}, chunk))
				if total += n; err != nil {
					if !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("after %d bytes: %v", total, err)
					}
					break
				}
			}
			wrote <- total
			s.CloseWrite()
		}()
	})
	total := <-wrote
	if total > bound {
		t.Errorf("the service wrote %d bytes that nothing reads", total)
	}
	got := 0
	for {
		_, data, err := ws.ReadMessage()
		for i, c := range data {
			if c != byte((got+i)/chunk) {
				t.Fatalf("byte %d is %d", got+i, c)
			}
		}
		if got += len(data); err == nil {
			continue
		}
		if !client.IsCloseError(err, 1001) || got != total {
			t.Errorf("%d of %d bytes, then %v", got, total, err)
		}
		return
	}
}

// A service that reads nothing blocks the client.
func TestAServiceThatReadsNothingBlocksTheClient(t *testing.T) {
	release := make(chan struct{})
	ended := make(chan error, 1)
	ws := tunnel(t, stream.Config{}, func(s *mux.Stream) {
		s.Accept()
		go func() {
			<-release
			_, err := io.Copy(io.Discard, s)
			ended <- err
			s.Close()
		}()
	})
	ws.SetWriteDeadline(time.Now().Add(waited))
	total := 0
	for total < much && ws.WriteMessage(client.BinaryMessage, make([]byte, chunk)) == nil {
		total += chunk
	}
	if total > bound {
		t.Errorf("the client wrote %d bytes that nothing reads", total)
	}
	ws.Close()
	close(release)
	if err := <-ended; err == nil {
		t.Error("the service takes the end of a client that left for an orderly one")
	}
}

// What a tunnel holds counts against the tenant's budget.
func TestATunnelBeyondTheBudgetIsRefused(t *testing.T) {
	ws := tunnel(t, stream.Config{Budget: 300 << 10}, func(s *mux.Stream) { s.Accept() })
	if _, _, err := ws.ReadMessage(); !client.IsCloseError(err, 1013) {
		t.Errorf("got %v, want 1013", err)
	}
}

func BenchmarkTunnelDown(b *testing.B) {
	ws := tunnel(b, stream.Config{}, func(s *mux.Stream) {
		s.Accept()
		go func() {
			for buf := make([]byte, chunk); ; {
				if _, err := s.Write(buf); err != nil {
					return
				}
			}
		}()
	})
	b.SetBytes(chunk)
	got := 0
	for b.Loop() {
		for got < chunk {
			_, r, err := ws.NextReader()
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r)
			if err != nil {
				b.Fatal(err)
			}
			got += int(n)
		}
		got -= chunk
	}
}

func BenchmarkTunnelUp(b *testing.B) {
	const inFlight = 64
	received := make(chan struct{}, inFlight)
	ws := tunnel(b, stream.Config{}, func(s *mux.Stream) {
		s.Accept()
		go func() {
			for buf := make([]byte, chunk); ; {
				if _, err := io.ReadFull(s, buf); err != nil {
					return
				}
				received <- struct{}{}
			}
		}()
	})
	data := make([]byte, chunk)
	b.SetBytes(chunk)
	sent := 0
	for b.Loop() {
		if sent++; sent > inFlight {
			<-received
		}
		if err := ws.WriteMessage(client.BinaryMessage, data); err != nil {
			b.Fatal(err)
		}
	}
}
