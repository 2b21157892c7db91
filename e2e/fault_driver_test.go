package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestFaultHostKilledOfEveryDriver kills the daemon of a host repeatedly while processes
// print in a sandbox of each driver, some on terminals: each line is recorded once, with
// the right end. An emulated machine runs only few processes.
func TestFaultHostKilledOfEveryDriver(t *testing.T) {
	for _, d := range []struct {
		name      string
		args      []string
		processes int
	}{{"namespace", nil, 20}, {"gvisor", nil, 20}, {"microvm", []string{"--tcg"}, 6}} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // the emulated machine uses one CPU, the others mostly wait
			rig.SkipUnless(t, rig.Options{Driver: d.name, Args: d.args})
			s := newTopology(t, rig.Topology{Driver: d.name, HostArgs: d.args})
			killedUnderPrinters(t, s, d.processes)
		})
	}
}

func killedUnderPrinters(t *testing.T, s *rig.Split, n int) {
	t.Helper()
	const script = `i=0; until [ -e /tmp/stop ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo last $i; exit 7`
	a := s.APIs[0]
	box := a.Create(t, "timeout", 3600)
	ids := make([]string, n)
	for i := range ids {
		spec := map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false}
		if i%3 == 1 {
			spec["pty"] = pty(80, 24)
		}
		ids[i], _ = launch(t, a, box.ID, spec)
	}
	const kills = 5
	for i := range kills {
		for _, id := range ids { // all continue after each restart
			live := a.Events(t, id, "follow=1")
			want := fmt.Sprintf("line %d", 10*(i+1))
			var output strings.Builder
			live.Until(t, func(l *rig.Line) bool {
				if l.Type == "stdout" || l.Type == "pty" {
					output.Write(l.Bytes())
				}
				return strings.Contains(output.String(), want)
			})
			live.Close()
		}
		_, err := s.Crash("host-1")
		must(t, err)
		must(t, s.Settled(1))
	}
	if lines := a.Commands(t, box.ID, "touch /tmp/stop").All(t); len(lines) == 0 {
		t.Fatal("stop the processes: timeout")
	}
	for i, id := range ids {
		lines := a.Events(t, id, "follow=1").All(t)
		stream, eol := "stdout", "\n"
		if i%3 == 1 {
			stream, eol = "pty", "\r\n"
		}
		got := rig.Output(lines, stream)
		var want strings.Builder
		count := strings.Count(got, eol) - 1
		for k := range count {
			fmt.Fprintf(&want, "line %d%s", k, eol)
		}
		fmt.Fprintf(&want, "last %d%s", count, eol)
		if got != want.String() {
			t.Errorf("process %d, %s: %d bytes, want %d; it ends with %q", i, stream, len(got), want.Len(), got[max(0, len(got)-60):])
		}
		if end := rig.End(t, lines); !strings.Contains(end.Raw, `"exit_code":7`) {
			t.Errorf("process %d: %s", i, end.Raw)
		}
	}
}
