package connect

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// raw is a request as bytes.
func raw(method, contentType, body string) string {
	return fmt.Sprintf("POST %s%s HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		processService, method, living, contentType, len(body), body)
}

// BenchmarkStart starts a scripted `true` over reused connections.
func BenchmarkStart(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint(clients, " in flight"), func(b *testing.B) {
			f := newFake(recordOf(surfacetest.Code(0)))
			s := serve(b, f, Config{})
			request := raw("Start", typeStreamJSON, envelope(0, run))
			b.SetParallelism(max(clients/runtime.GOMAXPROCS(0), 1))
			if clients == 1 {
				c, r := dial(b, s)
				for b.Loop() {
					roundTrip(b, c, r, request)
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				c, r := dial(b, s)
				for pb.Next() {
					roundTrip(b, c, r, request)
				}
			})
		})
	}
}

func dial(b *testing.B, s *surface) (net.Conn, *bufio.Reader) {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c, bufio.NewReaderSize(c, 256<<10)
}

func roundTrip(b *testing.B, c net.Conn, r *bufio.Reader, request string) int64 {
	if _, err := io.WriteString(c, request); err != nil {
		b.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// flood is a Source of identical frames.
type flood struct {
	data  []byte
	left  int
	seq   process.Seq
	batch [4]process.Event
}

func (f *flood) Next(context.Context, time.Duration) ([]process.Event, error) {
	if f.seq == 0 {
		f.seq = 2
		f.batch[0] = process.Event{Seq: 2, Body: process.Started{PID: 1}}
		return f.batch[:1], nil
	}
	if f.left <= 0 {
		f.seq++
		f.batch[0] = process.Event{Seq: f.seq, Body: surfacetest.Code(0)}
		return f.batch[:1], nil
	}
	for i := range f.batch {
		f.seq++
		f.left--
		f.batch[i] = process.Event{Seq: f.seq, Body: process.Wrote{Stream: process.Stdout, Offset: (f.seq - 3) * uint64(len(f.data)), Data: f.data}}
	}
	return f.batch[:], nil
}
func (f *flood) After() process.Seq { return f.seq }
func (f *flood) Close()             {}

// flooding implements Core with processes that print a flood.
type flooding struct {
	*fake
	data   []byte
	frames int
}

func (f *flooding) Start(context.Context, core.Principal, sandbox.ID, process.Spec, procs.StartOptions) (process.ID, stream.Source, error) {
	return surfacetest.ID, &flood{data: f.data, left: f.frames}, nil
}

// BenchmarkStream sends 64 MiB to one client that only counts bytes.
func BenchmarkStream(b *testing.B) {
	const total = 64 << 20
	lines := bytes.Repeat([]byte("0123456789 0123456789 0123456789 0123456789 0123456789 0123456\n"), 64<<10/63+1)
	raws := strings.Replace(run, `"stdin":false`, `"stdin":true`, 1)
	for _, tt := range []struct {
		name, contentType, msg string
		frame                  int
	}{
		{"JSON bulk 64 KiB", typeStreamJSON, envelope(0, raws), 64 << 10},
		{"JSON bulk 4 KiB", typeStreamJSON, envelope(0, raws), 4 << 10},
		{"JSON bulk 256 KiB", typeStreamJSON, envelope(0, raws), 256 << 10},
		{"JSON lines 64 KiB", typeStreamJSON, envelope(0, run), 64 << 10},
		{"JSON lines 4 KiB", typeStreamJSON, envelope(0, run), 4 << 10},
		{"JSON chunks of 64 B", typeStreamJSON, envelope(0, raws), 63},
		{"protobuf bulk 64 KiB", typeStreamProto, envelope(0, "\x0a\x03\x0a\x01x"), 64 << 10},
	} {
		b.Run(tt.name, func(b *testing.B) {
			f := &flooding{newFake(nil), bytes.Repeat(lines, 4)[:tt.frame], total / tt.frame}
			if tt.frame == 63 {
				f.frames /= 16
			}
			s := serveCore(b, f, Config{})
			c, r := dial(b, s)
			b.SetBytes(int64(f.frames * tt.frame))
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, c, r, raw("Start", tt.contentType, tt.msg))
			}
		})
	}
}

// BenchmarkIdle holds 10,000 idle streams, or as many as the limit of open files allows. Their clients are raw
// sockets that cost this process no memory.
func BenchmarkIdle(b *testing.B) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	n := int(min(10000, limit.Cur/2-100))
	f := newFake(recordOf(surfacetest.Out("ready\n"), surfacetest.Code(0)))
	f.hold = 3
	s := serve(b, f, Config{})
	_, port, _ := strings.Cut(strings.TrimPrefix(s.base, "http://"), ":")
	var at syscall.SockaddrInet4
	at.Addr = [4]byte{127, 0, 0, 1}
	fmt.Sscan(port, &at.Port)
	request := []byte(raw("Start", typeStreamJSON, envelope(0, run)))
	var fds []int
	defer func() {
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}()
	before := memory()
	for range n {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		if err == nil {
			fds = append(fds, fd)
			err = syscall.Connect(fd, &at)
		}
		if err == nil {
			_, err = syscall.Write(fd, request)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); s.streams.Open() < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			b.Fatalf("%d streams are open", s.streams.Open())
		}
	}
	<-time.After(300 * time.Millisecond) // until the goroutines of the requests have ended
	after := memory()
	for b.Loop() {
	}
	b.ReportMetric(float64(after-before)/float64(n)/1024, "KiB/stream")
	b.ReportMetric(float64(runtime.NumGoroutine())/float64(n), "goroutines/stream")
	b.ReportMetric(float64(n), "streams")
	b.ReportMetric(0, "ns/op")
}

// memory returns the memory in use after a full collection.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
