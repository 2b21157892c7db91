package hostload

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// state is what Linux says of a process: its state and the ticks that it computed.
func state(t *testing.T, pid int) (state string, ticks int) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	ticks, err = strconv.Atoi(f[11])
	if err != nil {
		t.Fatal(err)
	}
	return f[0], ticks
}

func TestLoad(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	l, err := Begin(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	await := func(what string, done func(state string, ticks int) bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for _, cmd := range l {
			for s, n := state(t, cmd.Process.Pid); !done(s, n); s, n = state(t, cmd.Process.Pid) {
				select {
				case <-tick.C:
				case <-t.Context().Done():
					t.Fatalf("a program does not %s", what)
				}
			}
		}
	}
	await("count", func(_ string, ticks int) bool { return ticks > 1 })
	if err := l.Pause(); err != nil {
		t.Fatal(err)
	}
	await("stand still", func(s string, _ int) bool { return s == "T" })
	if err := l.Resume(); err != nil {
		t.Fatal(err)
	}
	await("go on", func(s string, _ int) bool { return s != "T" })
	l.End()
	for _, cmd := range l {
		if _, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid)); err == nil {
			t.Errorf("%d is left", cmd.Process.Pid)
		}
	}
}
