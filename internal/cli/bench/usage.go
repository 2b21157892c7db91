package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
)

// usage is a process's resource usage from /proc.
type usage struct {
	cpu       time.Duration
	rss, peak float64 // MiB
	switches  float64 // context switches of its present threads
}

// process is a process id; 0: unknown.
type process int

func (p process) usage() (u usage, ok bool) {
	if p == 0 {
		return u, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(int(p)))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, false
	}
	// Fields are counted after the name, which may contain spaces and parentheses.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime = 11, 12
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return u, false
		}
		u.cpu += time.Duration(n) * time.Second / cpustat.Ticks
	}
	status, err := statusOf(dir)
	if err != nil {
		return u, false
	}
	u.rss, u.peak = status["VmRSS"]/1024, status["VmHWM"]/1024
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*"))
	if err != nil {
		return u, false
	}
	for _, t := range threads {
		status, err := statusOf(t)
		if err != nil {
			continue // the thread has ended
		}
		u.switches += status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"]
	}
	return u, true
}

// resetPeak makes the peak of the memory count from now on. Without the right to do that, the
// peak is that of the process's life.
func (p process) resetPeak() {
	if p != 0 {
		_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(int(p)), "clear_refs"), []byte("5"), 0)
	}
}

// statusOf returns the numbers in the status file of a process or thread, sizes in KiB.
func statusOf(dir string) (map[string]float64, error) {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil, err
	}
	all := make(map[string]float64)
	for l := range strings.Lines(string(status)) {
		name, v, _ := strings.Cut(l, ":")
		if n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 64); err == nil {
			all[name] = n
		}
	}
	return all, nil
}

// costs adds what n operations have cost the server since before, each.
func (b *bench) costs(before usage, known bool, n int) {
	after, ok := b.server.usage()
	if !ok || !known || n == 0 {
		return
	}
	b.add("server CPU each", float64((after.cpu-before.cpu).Microseconds())/float64(n), "us")
	b.add("server context switches each", (after.switches-before.switches)/float64(n), "")
}
