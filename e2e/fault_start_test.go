package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// A start is retried with its key while gateways and the host are killed: it forks once,
// and every attempt reads the same. Covers T-45 and T-46.
func TestFaultStartRetried(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	const rounds = 24
	victims := []string{"gateway-1", "host-1", "gateway-1+host-1", "nats-1"}
	var slowest time.Duration
	for i := range rounds {
		victim := victims[i%len(victims)]
		key := fmt.Sprintf("key-%d", i)
		body := map[string]any{"cmd": fmt.Sprintf("echo %d >> /tmp/forks; echo out %d; exit 7", i, i)}
		headers := []string{"E2b-Sandbox-Id", box.ID, "Idempotency-Key", key}
		first := make(chan struct{})
		go func() { // the retry replaces this attempt
			defer close(first)
			if r, _, err := s.APIs[0].OpenStream(http.MethodPost, "/commands", body, headers...); err == nil && r != nil {
				defer r.Close()
				for err == nil {
					_, err = r.Next()
				}
			}
		}()
		<-time.After(time.Duration(rand.IntN(8_000)) * time.Microsecond)
		began := time.Now()
		for v := range strings.SplitSeq(victim, "+") {
			s.Program(v).Kill9()
		}
		revived := make(chan error, 1)
		go func() { // the client does not wait for this
			var errs []error
			for v := range strings.SplitSeq(victim, "+") {
				errs = append(errs, s.RestartProgram(v))
			}
			revived <- errors.Join(errs...)
		}()
		lines := retried(t, s.APIs, body, headers)
		slowest = max(slowest, time.Since(began))
		must(t, <-revived)
		<-first
		if end := rig.End(t, lines); end.ExitCode == nil || *end.ExitCode != 7 || rig.Output(lines, "stdout") != fmt.Sprintf("out %d\n", i) {
			t.Errorf("round %d, %s killed:\n%s", i, victim, raws(lines))
		}
		other := map[string]any{"cmd": "echo other"}
		for _, a := range s.APIs {
			if ans := a.Do(t, http.MethodPost, "/commands", other, headers...); ans.Status != http.StatusConflict {
				t.Errorf("another body: %v", ans)
			}
		}
	}
	var want strings.Builder
	for i := range rounds {
		fmt.Fprintln(&want, i)
	}
	if got := s.APIs[0].StartStream(t, box.ID, "sort -n /tmp/forks").All(t).Stdout(); got != want.String() {
		t.Errorf("forks: %q", got)
	}
	t.Logf("the slowest retry had its end %v after the kill", slowest)
}

// retried posts a command, on the second gateway first, until its stream has the end. Each
// attempt must be a prefix of the same stream.
func retried(t *testing.T, apis []*rig.API, body map[string]any, headers []string) []*rig.Line {
	t.Helper()
	var got []*rig.Line
	for turn, until := 1, time.Now().Add(progressTimeout); time.Now().Before(until); turn++ {
		r, ans, err := apis[turn%len(apis)].OpenStream(http.MethodPost, "/commands", body, headers...)
		if err == nil && r == nil && !rig.Retryable(ans.Status) {
			t.Fatalf("retry: %v", ans)
		}
		if r == nil {
			<-time.After(comeBackPause)
			continue
		}
		var lines []*rig.Line
		var l *rig.Line
		for err == nil {
			if l, err = r.Next(); err == nil {
				lines = append(lines, l)
			}
		}
		r.Close()
		for i := range min(len(lines), len(got)) {
			if lines[i].Raw != got[i].Raw && lines[i].Type != "reconnect" && got[i].Type != "reconnect" {
				t.Errorf("one attempt: %s, another: %s", got[i].Raw, lines[i].Raw)
			}
		}
		if got = lines; errors.Is(err, io.EOF) && len(lines) > 0 && lines[len(lines)-1].Type == "end" {
			return lines
		}
	}
	t.Fatalf("no end; last:\n%s", raws(got))
	return nil
}

// Gateways, the host and NATS are killed around the end of processes: every surface has the
// end once, after all output. Covers T-41.
func TestFaultExitSeenOnce(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	victims := []string{"gateway-1", "host-1", "gateway-2", "nats-1", ""}
	for i := range 15 {
		lines := 200 + 40*i
		id, _ := launch(t, s.APIs[i%2], box.ID, counter{lines: lines, every: time.Millisecond}.spec())
		c := newCrowd(t)
		c.watch(s.APIs, box.ID, id, 0, surfaces...)
		// Kill at about the time of the last line.
		if rig.Poll(progressTimeout, func() bool { return c.ledgers[0].lines.Load() > uint64(lines-60) }) && victims[i%5] != "" {
			<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
			_, err := s.Crash(victims[i%5])
			must(t, err)
		}
		c.finish(t, counterCode)
		if n := c.ledgers[0].lines.Load(); n != uint64(lines) {
			t.Errorf("%d lines, want %d", n, lines)
		}
		// A later reader sees the same.
		late := newCrowd(t)
		late.watch(s.APIs, box.ID, id, i, surfaces...)
		late.finish(t, counterCode)
	}
}

// A reader that stops reading affects neither other readers nor the process, and gets every
// byte when it continues. Covers T-31 and T-33.
func TestFaultReaderStops(t *testing.T) {
	s := newTopology(t, rig.Topology{})
	a := s.APIs[0]
	box := a.Create(t)
	fat := counter{lines: 150_000, pad: 300} // 46 MB
	alone := fullSpeed(t, a, box.ID, fat, nil)
	var stuck *stuckReader
	beside := fullSpeed(t, a, box.ID, fat, func(id string) { stuck = stopReading(t, a, id) })
	t.Logf("%d lines to one reader: %v; beside one that does not read: %v", fat.lines, alone, beside)
	if beside > 2*alone+time.Second {
		t.Errorf("beside a reader that does not read it took %v instead of %v", beside, alone)
	}
	if err := stuck.rest(fat.lines); err != nil {
		t.Error(err)
	}
}

// fullSpeed runs a counter to its end with one reader and returns the duration.
func fullSpeed(t *testing.T, a *rig.API, sandbox string, n counter, first func(id string)) time.Duration {
	t.Helper()
	began := time.Now()
	id, _ := launch(t, a, sandbox, n.spec())
	if first != nil {
		first(id)
	}
	c := newCrowd(t)
	c.watch([]*rig.API{a}, sandbox, id, 0, "events")
	c.finish(t, counterCode)
	checkPauses(t, c)
	return time.Since(began)
}

// stuckReader is a client with a small window that sent a request and does not read.
type stuckReader struct {
	conn net.Conn
	id   string
}

func stopReading(t *testing.T, a *rig.API, id string) *stuckReader {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(a.URL, "http://"), 5*time.Second)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		must(t, tcp.SetReadBuffer(64<<10))
	}
	fmt.Fprintf(conn, "GET /v1/processes/%s/events HTTP/1.0\r\nHost: x\r\nX-API-Key: %s\r\n\r\n", id, a.Key)
	return &stuckReader{conn, id}
}

// rest reads everything after the pause.
func (r *stuckReader) rest(lines int) error {
	l := newLedger("stuck", r.id)
	if err := r.take(&eventsReader{id: r.id}, l); err != nil {
		return err
	}
	l.settle(nil)
	if err := l.check(counterCode); err != nil || l.lines.Load() != uint64(lines) {
		return fmt.Errorf("%d of %d lines: %w", l.lines.Load(), lines, err)
	}
	return nil
}

// take reads whole lines up to the record's end, or until it is cut off.
func (r *stuckReader) take(events *eventsReader, l *ledger) error {
	r.conn.SetReadDeadline(time.Now().Add(finishTimeout))
	raw, cut := io.ReadAll(r.conn)
	_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	for text := range bytes.Lines(body) {
		if text[len(text)-1] != '\n' {
			break
		}
		line := &rig.Line{Raw: string(text)}
		if err := json.Unmarshal(text, line); err != nil {
			return wrong("%q: %v", text, err)
		}
		if ended, err := events.take(line, l); err != nil || ended {
			return err
		}
	}
	return errors.Join(cut, io.ErrUnexpectedEOF)
}

// A reader that reads nothing for longer than the gateway's timeout is dropped, and resumes
// from its position. Covers T-32.
func TestFaultReaderStuck(t *testing.T) {
	t.Parallel()
	if os.Getenv(EnvSoak) == "" {
		t.Skip("takes minutes: set " + EnvSoak)
	}
	s := newTopology(t, rig.Topology{})
	a := s.APIs[0]
	box := a.Create(t)
	fat := counter{lines: 50_000, pad: 300}
	id, _ := launch(t, a, box.ID, fat.spec())
	stuck := stopReading(t, a, id)
	const dropped = 150 * time.Second // the gateway waits 30 s per write, and kernels buffer some
	open := func() bool { return a.Metrics(t)["millrace_streams_open"] > 0 }
	if !rig.Poll(5*time.Second, open) || !rig.Poll(dropped, func() bool { return !open() }) {
		t.Fatal("a reader that reads nothing is never dropped")
	}
	l, events := newLedger("stuck", id), &eventsReader{id: id}
	if err := stuck.take(events, l); err == nil || isWrong(err) {
		t.Errorf("after it was dropped: %v", err)
	}
	t.Logf("dropped after line %d of %d", l.lines.Load(), fat.lines)
	follow(t.Context(), l, events, []*rig.API{a}, 0)
	if err := l.check(counterCode); err != nil || l.lines.Load() != uint64(fat.lines) {
		t.Errorf("%d lines: %v", l.lines.Load(), err)
	}
}
