package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// output writes 10 KB to a terminal every 10 ms, more after a delay, and the time into its first row after each.
const output = `line='0123456789 a line of a build log that is about eighty columns wide, more or less'
for i in {1..119}; do chunk+="$line"$'\r\n'; done
begun=${EPOCHREALTIME/./} n=0
while read -t 0.005; (( $? > 128 )); do
  while (( n * 10000 < ${EPOCHREALTIME/./} - begun )); do printf '\e[24;1H%s\e[1;1HT=%s;' "$chunk" "$EPOCHREALTIME"; n=$((n + 1)); done
done`

// BenchmarkWatchers measures a terminal that 1,000 clients watch while it has output of 1 MB/s: the time from
// the output to its arrival at 100 of them, and the resident memory of the gateway that each takes.
func BenchmarkWatchers(b *testing.B) {
	const watchers, sampled, frames = 1000, 100, 200
	s := rig.NewSplit(b, rig.Topology{})
	api := s.APIs[0]
	box := api.Create(b)
	stream := api.Commands(b, box.ID, "exec bash -c "+strconv.Quote("$SCRIPT"), "timeout_ms", 0,
		"env", map[string]string{"SCRIPT": output}, "pty", map[string]int{"cols": 80, "rows": 24})
	id := stream.Header.Get("X-Process-Id")
	stream.Close()
	gateway := s.Program("gateway-1").PID()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	b.Cleanup(func() { cancel(); all.Wait() })
	var ready atomic.Int64
	latencies := make(chan time.Duration, sampled*frames)
	add := func(sampled bool) { all.Go(func() { watch(ctx, api, id, &ready, sampled, latencies) }) }
	add(true)
	for range frames { // folding the record costs memory, too, but not once more for each watcher
		<-latencies
	}
	before := resident(b, gateway)
	for i := range watchers - 1 {
		add(i+1 < sampled)
	}
	for b.Loop() {
		if !rig.Poll(browserTimeout, func() bool { return ready.Load() == watchers }) {
			b.Fatalf("%d of %d watch", ready.Load(), watchers)
		}
		for len(latencies) > 0 {
			<-latencies
		}
		began, written := time.Now(), storedOutput(b, api, id)
		var took []time.Duration
		for range sampled * frames {
			took = append(took, <-latencies)
		}
		seconds := time.Since(began).Seconds()
		b.ReportMetric(float64(storedOutput(b, api, id)-written)/seconds/1e6, "MB/s")
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(len(took))/seconds/sampled, "frames/s")
		b.ReportMetric(float64(resident(b, gateway)-before)/watchers/1024, "KiB/watcher")
	}
}

// watch reads the live screen of a process, and reports the age of each frame if it is sampled.
func watch(ctx context.Context, api *rig.API, id string, ready *atomic.Int64, sampled bool, to chan<- time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+"/v1/processes/"+id+"/screen/live", nil)
	if err != nil {
		return
	}
	req.Header.Set("X-API-KEY", api.Key)
	resp, err := (&http.Transport{DisableCompression: true, ReadBufferSize: 4 << 10}).RoundTrip(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	ready.Add(1)
	if !sampled {
		_, _ = io.Copy(io.Discard, resp.Body) // until the context ends
		return
	}
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if at := newest(line); !at.IsZero() {
			select {
			case to <- time.Since(at):
			default: // the benchmark does not measure at the moment
			}
		}
	}
}

// newest returns the last of the times in a frame.
func newest(line []byte) time.Time {
	var last time.Time
	for {
		_, rest, found := bytes.Cut(line, []byte("T="))
		text, _, whole := bytes.Cut(rest, []byte(";"))
		if !found || !whole {
			return last
		}
		if sec, micro, ok := strings.Cut(string(text), "."); ok {
			s, errS := strconv.ParseInt(sec, 10, 64)
			u, errU := strconv.ParseInt(micro, 10, 64)
			if at := time.Unix(s, u*1000); errS == nil && errU == nil && at.After(last) {
				last = at
			}
		}
		line = rest
	}
}

// storedOutput returns how much output of a process is stored.
func storedOutput(tb testing.TB, api *rig.API, id string) (sum int) {
	tb.Helper()
	var t struct{ Buckets []struct{ Bytes int } }
	if err := json.Unmarshal(api.Want(tb, 200, "GET", "/v1/processes/"+id+"/timeline?buckets=1", nil).Body, &t); err != nil {
		tb.Fatal(err)
	}
	for _, b := range t.Buckets {
		sum += b.Bytes
	}
	return sum
}

// resident returns the resident memory of a process in bytes.
func resident(tb testing.TB, pid int) int {
	tb.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		tb.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		tb.Fatal(err)
	}
	return pages * os.Getpagesize()
}
