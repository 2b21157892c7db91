package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	manyVariable = "MILLRACE_WORKSPACE_FILES" // number of files of TestE2AWorkspaceOfManyFiles
	sizeVariable = "MILLRACE_WORKSPACE_MIB"   // size of the file of TestE2AWorkspaceOfLargeFile
)

// sized returns a workspace of a topology with one gateway, and the value of a variable; it skips the test
// without one.
func sized(t *testing.T, variable string) (m *mounting, gateway *rig.Program, n int) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("it takes minutes; set %s", variable)
	}
	n, err := strconv.Atoi(os.Getenv(variable))
	must(t, err)
	s := rig.NewSplit(t, rig.Topology{NATS: 1, Gateways: 1, Schedulers: 1, Reapers: 1, Hosts: 1, GatewayArgs: []string{"--sign-up-test-mode", "--tenant-rate", "10000000"}})
	return &mounting{API: s.APIs[0], token: []string{"Authorization", "Bearer " + userToken(t, s.APIs[0].URL)}}, s.Program("gateway-1"), n
}

// A list with cursors has each file of a large workspace once, in order.
func TestE2AWorkspaceOfManyFiles(t *testing.T) {
	m, gateway, n := sized(t, manyVariable)
	before, begun := memory(t, gateway.PID())>>20, time.Now()
	var work sync.WaitGroup
	for w := range 8 {
		work.Go(func() {
			for i := w; i < n; i += 8 {
				m.store(t, fmt.Sprintf("d%03d/f%06d", i%1000, i), "x")
			}
		})
	}
	work.Wait()
	t.Logf("%d files stored in %v", n, time.Since(begun))
	filled := memory(t, gateway.PID()) >> 20
	for _, limit := range []int{20, 1000} {
		var times []time.Duration
		var last, token string
		seen := 0
		for {
			var l struct {
				Files []struct{ Path string }
				Next  string `json:"next_token"`
			}
			begun := time.Now()
			m.Want(t, 200, "GET", fmt.Sprintf("%s?limit=%d&token=%s", mountedFiles, limit, token), nil, m.token...).Decode(t, &l)
			times = append(times, time.Since(begun))
			for _, f := range l.Files {
				if f.Path <= last {
					t.Fatalf("%s after %s", f.Path, last)
				}
				last = f.Path
			}
			seen += len(l.Files)
			if token = l.Next; token == "" {
				break
			}
		}
		slices.Sort(times)
		if seen != n {
			t.Errorf("%d files in %d pages", seen, len(times))
		}
		t.Logf("%d pages of %d: p50 %v, p99 %v", len(times), limit, times[len(times)/2], times[len(times)*99/100])
	}
	t.Logf("memory of the gateway: %d MiB before, %d MiB with the files, %d MiB after the lists", before, filled, memory(t, gateway.PID())>>20)
}

// A large file goes up and down through links of the gateway, as it is.
func TestE2AWorkspaceOfLargeFile(t *testing.T) {
	m, gateway, mib := sized(t, sizeVariable)
	size := int64(mib) << 20
	url := func(method string) string {
		var l struct{ URL string }
		m.Want(t, 200, method, mountedFiles+"/files/large", nil, m.token...).Decode(t, &l)
		return l.URL
	}
	send := func(size int64, sum hash.Hash) string {
		data := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sum)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url("PUT"), io.NopCloser(data))
		must(t, err)
		req.ContentLength = size
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.Status + " " + string(raw)
	}
	up, begun := sha256.New(), time.Now()
	if got := send(size, up); !strings.HasPrefix(got, "200 ") {
		t.Fatalf("upload: %s", got)
	}
	took, filled := time.Since(begun), memory(t, gateway.PID())>>20
	t.Logf("up: %v, %.0f MiB/s", took, float64(mib)/took.Seconds())
	begun = time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url("GET"), nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	down := sha256.New()
	if n, err := io.Copy(down, resp.Body); err != nil || n != size || !bytes.Equal(down.Sum(nil), up.Sum(nil)) {
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
	took = time.Since(begun)
	t.Logf("down: %v, %.0f MiB/s; memory of the gateway: %d MiB after the upload, %d MiB after the download", took, float64(mib)/took.Seconds(), filled, memory(t, gateway.PID())>>20)
	m.Want(t, 200, "DELETE", mountedFiles+"/files/large", nil, m.token...)
}
