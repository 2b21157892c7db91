//go:build linux

package shim_test

import (
	"fmt"
	"hash/crc64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// spoolFile returns a file without a name, as hostd passes one.
func spoolFile(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Skip("no files without names here:", err)
	}
	f := os.NewFile(uintptr(fd), "spool")
	t.Cleanup(func() { f.Close() })
	return f
}

// diskHost returns a host on a new shim with a disk, and the shim's pid.
func diskHost(t *testing.T, limits wire.Limits) (h *host, pid int) {
	t.Helper()
	socket, cmd := startShim(t)
	h = newHost(t, socket)
	h.limits, h.file = limits, spoolFile(t)
	h.connect()
	return h, cmd.Process.Pid
}

func stat(t *testing.T, f *os.File) (size int64, mtime time.Time) {
	t.Helper()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size(), fi.ModTime()
}

// peakMemory returns the peak resident memory of a process in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// numbered prints numbered lines on both streams, then creates the file done.
func numbered(lines int, done string) process.Spec {
	const script = `$n=shift; $f=shift; for $i (1..$n) { printf "%07d %s\n", $i, "x" x 90; printf STDERR "%d\n", $i if $i % 1000 == 0 } open(F,">",$f); exit 3`
	return process.Spec{Cmd: "perl", Args: []string{"-e", script, strconv.Itoa(lines), done}}
}

func numberedSums(lines int) (out, err uint64) {
	table := crc64.MakeTable(crc64.ECMA)
	for i := 1; i <= lines; i++ {
		out = crc64.Update(out, table, fmt.Appendf(nil, "%07d %s\n", i, strings.Repeat("x", 90)))
		if i%1000 == 0 {
			err = crc64.Update(err, table, fmt.Appendf(nil, "%d\n", i))
		}
	}
	return out, err
}

func checkNumbered(t *testing.T, p *rec, lines int) {
	t.Helper()
	table := crc64.MakeTable(crc64.ECMA)
	out, errs := numberedSums(lines)
	if crc64.Checksum(p.out[process.Stdout], table) != out || crc64.Checksum(p.out[process.Stderr], table) != errs || describe(p.end) != "exited 3" {
		t.Errorf("wrong output of %d and %d bytes; %s", len(p.out[process.Stdout]), len(p.out[process.Stderr]), describe(p.end))
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not appear", path)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestSpillsToDiskWhileHostdIsAway: hostd is away while a process prints a hundred times
// the memory limit. The process does not block, the shim stays small, and no output is lost
// or duplicated across two reconnects, the second in the middle of catching up.
func TestSpillsToDiskWhileHostdIsAway(t *testing.T) {
	h, pid := diskHost(t, wire.Limits{SpoolProcess: 1 << 20, Disk: 1 << 30})
	const lines = 1_000_000 // 100 MB
	done := filepath.Join(t.TempDir(), "done")
	token := h.start(numbered(lines, done))
	p := h.procs[token]
	h.await("some output", func() bool { return len(p.out[process.Stdout]) > 1<<20 })
	h.disconnect()
	awaitFile(t, done)
	if size, _ := stat(t, h.file); size < 50<<20 {
		t.Errorf("the file has %d bytes", size)
	}
	h.connect()
	h.await("half of it", func() bool { return len(p.out[process.Stdout]) > 50<<20 })
	h.connect()
	checkNumbered(t, h.awaitEnd(token), lines)
	if size, _ := stat(t, h.file); size != 0 {
		t.Errorf("the file still has %d bytes", size)
	}
	if n := peakMemory(t, pid); n > 64<<20 {
		t.Errorf("the shim used %d MiB", n>>20)
	}
}

// TestSpillsToDiskWhileHostdStoresNothing: hostd is connected but stores nothing, as while
// NATS is down.
func TestSpillsToDiskWhileHostdStoresNothing(t *testing.T) {
	h, _ := diskHost(t, wire.Limits{SpoolProcess: 1 << 20, Disk: 1 << 30})
	h.holdAcks = true
	const lines = 500_000
	done := filepath.Join(t.TempDir(), "done")
	token := h.start(numbered(lines, done))
	awaitFile(t, done)
	h.ackAll()
	checkNumbered(t, h.awaitEnd(token), lines)
}

// TestDiskIsUnusedWhileHostdStores: a process that is faster than hostd blocks; output goes
// to the disk only while hostd stores nothing.
func TestDiskIsUnusedWhileHostdStores(t *testing.T) {
	h, _ := diskHost(t, wire.Limits{Disk: 1 << 30})
	_, before := stat(t, h.file)
	const lines = 100_000
	checkNumbered(t, h.awaitEnd(h.start(numbered(lines, filepath.Join(t.TempDir(), "done")))), lines)
	if _, after := stat(t, h.file); !after.Equal(before) {
		t.Error("the file was written to")
	}
}

// TestFullDiskBlocksAndLosesNothing: when the disk limit is reached too, the process
// blocks.
func TestFullDiskBlocksAndLosesNothing(t *testing.T) {
	const share = 4 << 20
	h, _ := diskHost(t, wire.Limits{SpoolProcess: 1 << 20, Disk: share})
	const lines = 300_000 // 30 MB
	done := filepath.Join(t.TempDir(), "done")
	token := h.start(numbered(lines, done))
	p := h.procs[token]
	h.await("its start", func() bool { return p.started != 0 })
	h.disconnect()
	end := time.Now().Add(patience)
	for size, last := int64(0), int64(-1); (size < share/2 || size != last) && time.Now().Before(end); { // until it stops growing
		last = size
		<-time.After(100 * time.Millisecond)
		size, _ = stat(t, h.file)
	}
	if size, _ := stat(t, h.file); size > share || size < share/2 {
		t.Errorf("the file has %d bytes", size)
	}
	if _, err := os.Stat(done); err == nil {
		t.Error("the process did not block")
	}
	h.connect()
	checkNumbered(t, h.awaitEnd(token), lines)
}

// TestForgottenProcessFreesItsDiskSpace: after Forget, the file is empty.
func TestForgottenProcessFreesItsDiskSpace(t *testing.T) {
	h, _ := diskHost(t, wire.Limits{SpoolProcess: 1 << 20, Disk: 1 << 30})
	done := filepath.Join(t.TempDir(), "done")
	token := h.start(numbered(100_000, done))
	h.await("its start", func() bool { return h.procs[token].started != 0 })
	h.disconnect()
	awaitFile(t, done)
	h.mu.Lock()
	delete(h.procs, token)
	h.mu.Unlock()
	h.connect() // makes the shim forget it
	for end := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		if size, _ := stat(t, h.file); size == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the disk space was not freed")
		}
	}
}

// TestOutputIsReadAtItsRate: output beyond the rate is read later, never dropped; per
// process and in total.
func TestOutputIsReadAtItsRate(t *testing.T) {
	const size, rate = 3 << 20, 4 << 20
	for _, tt := range []struct {
		name      string
		limits    wire.Limits
		processes int
		least     time.Duration
	}{
		{"of one process", wire.Limits{Rate: rate}, 2, size * time.Second / rate / 2},
		{"of all", wire.Limits{RateTotal: rate}, 3, 3 * size * time.Second / rate / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := diskHost(t, tt.limits)
			begun := time.Now()
			var tokens []string
			for range tt.processes {
				tokens = append(tokens, h.start(sh(fmt.Sprintf("head -c %d /dev/zero", size))))
			}
			for _, token := range tokens {
				if p := h.awaitEnd(token); len(p.out[process.Stdout]) != size || describe(p.end) != "exited 0" {
					t.Errorf("%d bytes, %s", len(p.out[process.Stdout]), describe(p.end))
				}
			}
			if took := time.Since(begun); took < tt.least {
				t.Errorf("took %v, want at least %v", took, tt.least)
			}
		})
	}
}

// TestQuotaOfAllProcesses: output beyond the sandbox's quota is not recorded, and the
// record has the amount.
func TestQuotaOfAllProcesses(t *testing.T) {
	h, _ := diskHost(t, wire.Limits{QuotaTotal: 100_000})
	first := h.awaitEnd(h.start(sh("head -c 70000 /dev/zero")))
	second := h.awaitEnd(h.start(sh("head -c 70000 /dev/zero; echo err >&2")))
	dropped := map[process.Stream]uint64{}
	for _, e := range second.events {
		if b, ok := e.Body.(process.Truncated); ok {
			dropped[b.Stream] = b.Dropped
		}
	}
	if n, m := len(first.out[process.Stdout]), len(second.out[process.Stdout])+len(second.out[process.Stderr]); n != 70_000 || m != 30_000 ||
		dropped[process.Stdout]+dropped[process.Stderr] != 40_004 {
		t.Errorf("%d and %d bytes, dropped %v", n, m, dropped)
	}
}

// TestConcludedRecordHasExitAndDroppedBytes: if the output of an ended sandbox takes too
// long to store, the part that hostd does not have yet is dropped. The record has the
// amount and how the process ended.
func TestConcludedRecordHasExitAndDroppedBytes(t *testing.T) {
	h, _ := diskHost(t, wire.Limits{SpoolProcess: 2 << 20, Disk: 1 << 30})
	h.holdAcks = true
	const lines, size = 200_000, 200_000 * 99
	token := h.start(numbered(lines, filepath.Join(t.TempDir(), "done")))
	quiet := h.start(sh("echo quiet; exit 4"))
	p, q := h.procs[token], h.procs[quiet]
	h.await("the start and the quiet end", func() bool { return p.started != 0 && q.end != nil })
	awaitGone(t, int(p.started))
	h.send(wire.AppendEnd(nil))
	h.send(wire.AppendConclude(nil))
	h.send(wire.AppendConclude(nil)) // repeated, as after a lost connection
	h.settle()
	h.ackAll()
	h.awaitEnd(token)
	h.await("the sandbox's end", func() bool { return h.ended })
	dropped := map[process.Stream]int{}
	var types []string
	for _, e := range p.events {
		if b, ok := e.Body.(process.Truncated); ok {
			dropped[b.Stream] += int(b.Dropped)
		}
		if types = append(types, e.Type()); e.Type() == "stdout" || e.Type() == "stderr" {
			types = types[:len(types)-1]
		}
	}
	const piped = 256 << 10 // may be unread in the pipe when the record is concluded
	if n := len(p.out[process.Stdout]); n+dropped[process.Stdout] > size || n+dropped[process.Stdout] < size-piped || n > 2<<20 {
		t.Errorf("%d bytes of %d, %d dropped", n, size, dropped[process.Stdout])
	}
	if describe(p.end) != "exited 3" || describe(p.exit) != "exited 3" || types[0] != "start" || types[len(types)-1] != "end" {
		t.Errorf("%s: %s", types, describe(p.end))
	}
	if describe(q.end) != "exited 4" || string(q.out[process.Stdout]) != "quiet\n" {
		t.Errorf("a record that was complete: %q, %s", q.out[process.Stdout], describe(q.end))
	}
	if n, _ := stat(t, h.file); n != 0 {
		t.Errorf("the file still has %d bytes", n)
	}
}

// awaitGone waits until a process has been reaped.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); unix.Kill(pid, 0) != unix.ESRCH; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d was not reaped", pid)
		}
	}
}
