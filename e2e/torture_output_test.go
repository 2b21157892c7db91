package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/e2e/rig"
	pb "github.com/millrace/millrace/schema/process"
)

// runOnAllSurfaces runs a command once and reads its output on each surface: live from Connect,
// afterwards from the record as NDJSON and as SSE. It checks that all are equal and returns
// the run.
func runOnAllSurfaces(t *testing.T, a *rig.API, sandbox, cmd string) *rig.Run {
	t.Helper()
	run := a.StartStream(t, sandbox, cmd).All(t)
	for name, headers := range map[string][]string{"NDJSON": nil, "SSE": {"Accept", "text/event-stream"}} {
		lines := a.Events(t, run.Process, "", headers...).All(t)
		for i, l := range lines {
			if l.Seq != uint64(i+1) {
				t.Fatalf("%s: event %d has seq %d", name, i+1, l.Seq)
			}
			if headers != nil && (l.SSE.ID != fmt.Sprint(l.Seq) || l.SSE.Event != l.Type) {
				t.Errorf("SSE: id %q, event %q of %s", l.SSE.ID, l.SSE.Event, l.Raw)
			}
		}
		for _, s := range []string{"stdout", "stderr"} {
			if got := rig.Output(lines, s); got != string(run.Out[s]) {
				t.Errorf("%s: %s is %.200q, Connect has %.200q", name, s, got, run.Out[s])
			}
		}
		end := rig.End(t, lines)
		if run.End != nil && run.End.Exited && (end.ExitCode == nil || *end.ExitCode != run.End.ExitCode) {
			t.Errorf("%s: end %s, Connect has %+v", name, end.Raw, run.End)
		}
	}
	return run
}

// TestProcessWithoutOutputEnds covers A01: a process without output has only a start and an
// end.
func TestProcessWithoutOutputEnds(t *testing.T) {
	a := api(t)
	run := runOnAllSurfaces(t, a, a.Create(t).ID, "true")
	if len(run.Out) != 0 || run.End == nil || run.End.ExitCode != 0 || len(run.Messages) != 2 {
		t.Errorf("%d messages, end %+v", len(run.Messages), run.End)
	}
}

// TestOutputWithoutNewline covers A02: output without a newline arrives.
func TestOutputWithoutNewline(t *testing.T) {
	a := api(t)
	if run := runOnAllSurfaces(t, a, a.Create(t).ID, "printf 'a\\nb'; printf c >&2"); run.Stdout() != "a\nb" || string(run.Out["stderr"]) != "c" {
		t.Errorf("%q, %q", run.Stdout(), run.Out["stderr"])
	}
}

// TestByteArrivesBeforeSilence covers A03: a byte arrives at once, also if nothing follows for
// a minute.
func TestByteArrivesBeforeSilence(t *testing.T) {
	t.Parallel()
	silence := 60
	if testing.Short() {
		silence = 2
	}
	a := api(t)
	box := a.Create(t)
	began := time.Now()
	r := a.StartStream(t, box.ID, fmt.Sprintf("printf x; sleep %d; printf y", silence), "Connect-Timeout-Ms", "0")
	r.Started(t)
	if until(t, r, "x"); time.Since(began) > time.Duration(silence)*time.Second {
		t.Errorf("x arrived after %v", time.Since(began))
	}
	var out []byte
	end, _ := restOf(t, r, func(b []byte) { out = append(out, b...) })
	if d := time.Since(began); string(out) != "y" || end == nil || end.ExitCode != 0 || d < time.Duration(silence)*time.Second {
		t.Errorf("after %v: %q, end %+v", d, out, end)
	}
}

// TestOneByteWrites covers A04: many writes of one byte arrive whole.
func TestOneByteWrites(t *testing.T) {
	a := api(t)
	run := a.StartStream(t, a.Create(t).ID, "dd if=/dev/zero bs=1 count=1000000 status=none | dd ibs=1 obs=1 status=none").All(t)
	if n := len(run.Out["stdout"]); n != 1000000 || len(bytes.Trim(run.Out["stdout"], "\x00")) > 0 {
		t.Errorf("%d bytes", n)
	}
}

// fastOutput returns the output in a payload without parsing the JSON.
func fastOutput(payload, dst []byte) ([]byte, error) {
	const head = `{"event":{"data":{"stdout":"`
	if !bytes.HasPrefix(payload, []byte(head)) {
		return dst[:0], nil
	}
	b := payload[len(head):]
	b = b[:bytes.IndexByte(b, '"')]
	dst = append(dst[:0], make([]byte, base64.StdEncoding.DecodedLen(len(b)))...)
	n, err := base64.StdEncoding.Decode(dst, b)
	return dst[:n], err
}

// TestGibibyteOfOutputArrivesWhole covers A05: one GiB of output arrives whole.
func TestGibibyteOfOutputArrivesWhole(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	a := api(t)
	box := a.Create(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := newProcClient(a, box.ID)
	s, _ := begin(ctx, t, c, &pb.StartRequest{
		Process: &pb.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", fmt.Sprintf("yes | head -c %d", size)}},
	})
	want := bytes.Repeat([]byte("y\n"), 1<<20)
	n, began := 0, time.Now()
	var end *pb.ProcessEvent_EndEvent
	for s.Receive() {
		b := s.Msg().GetEvent().GetData().GetStdout()
		for len(b) > 0 {
			k := min(len(b), len(want)-n%2)
			if !bytes.Equal(b[:k], want[n%2:n%2+k]) {
				t.Fatalf("at byte %d: %q", n, b[:min(k, 80)])
			}
			n, b = n+k, b[k:]
		}
		if e := s.Msg().GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
	if err := s.Err(); err != nil || n != size || end.GetExitCode() != 0 || end == nil {
		t.Errorf("%d bytes, end %v: %v", n, end, err)
	}
	t.Logf("%.0f MB/s", float64(n)/1e6/time.Since(began).Seconds())
	s.Close()
}

// TestLineOf64MiB covers A06: a line of 64 MiB does not break line-based readers.
func TestLineOf64MiB(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const size = 64 << 20
	cmd := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)
	r := a.StartStream(t, box.ID, cmd)
	n := 0
	end, words := restOf(t, r, func(b []byte) {
		if len(bytes.Trim(b, "x")) > 0 {
			t.Fatalf("at byte %d: %.80q", n, b)
		}
		n += len(b)
	})
	if n != size || end == nil || words != "{}" {
		t.Errorf("Connect: %d bytes, end %+v, last %s", n, end, words)
	}
	n = 0
	lines := a.Commands(t, box.ID, cmd).Until(t, func(l *rig.Line) bool {
		n += len(l.Bytes())
		return l.Type == "end"
	})
	if n != size || *lines[len(lines)-1].ExitCode != 0 {
		t.Errorf("NDJSON: %d bytes", n)
	}
	n = 0
	a.Events(t, lines[0].Process, "").Until(t, func(l *rig.Line) bool {
		n += len(l.Bytes())
		return l.Type == "end"
	})
	if n != size {
		t.Errorf("record: %d bytes", n)
	}
}

// TestAllByteValuesArrive covers A07: all byte values arrive unchanged.
func TestAllByteValuesArrive(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := runOnAllSurfaces(t, a, box.ID, fmt.Sprintf(printAll, 1))
	if !bytes.Equal(run.Out["stdout"], allBytes()) {
		t.Errorf("%x", run.Out["stdout"])
	}
	// A megabyte of random data; the sandbox computes the checksum.
	run = runOnAllSurfaces(t, a, box.ID, "head -c 1000000 /dev/urandom | tee >(sha256sum | cut -c-64 >&2)")
	sum := sha256.Sum256(run.Out["stdout"])
	if got, want := hex.EncodeToString(sum[:]), strings.TrimSpace(string(run.Out["stderr"])); got != want {
		t.Errorf("%d bytes with the sum %s, want %s", len(run.Out["stdout"]), got, want)
	}
}

// TestTextIsSplitBetweenRunes covers A08: text is split between runes. Bytes that are not
// UTF-8 are replaced in /commands and unchanged everywhere else.
func TestTextIsSplitBetweenRunes(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const split = `printf '\xf0\x9f'; sleep 0.3; printf '\x98\x80\n'`
	if run := runOnAllSurfaces(t, a, box.ID, split); run.Stdout() != "😀\n" {
		t.Errorf("a rune in two writes: %q", run.Stdout())
	}
	for name, fields := range map[string][]any{"lines": nil, "chunks": {"stdin", true}} {
		lines := a.Commands(t, box.ID, split, fields...).All(t)
		if got := rig.Output(lines, "stdout"); got != "😀\n" {
			t.Errorf("%s: a rune in two writes: %q", name, got)
		}
		lines = a.Commands(t, box.ID, `printf 'a\xffb\xc3(\xe2\x82\n'; printf '\xf0\x9f'`, fields...).All(t)
		got := rig.Output(lines, "stdout")
		if !utf8.ValidString(got) || !strings.HasPrefix(got, "a\ufffdb\ufffd(\ufffd") || !strings.Contains(got, "\n") {
			t.Errorf("%s: not UTF-8: %q", name, got)
		}
	}
	if run := runOnAllSurfaces(t, a, box.ID, `printf 'a\xffb\xc3('; printf '\xf0\x9f' >&2`); run.Stdout() != "a\xffb\xc3(" || string(run.Out["stderr"]) != "\xf0\x9f" {
		t.Errorf("no text: %q %q", run.Stdout(), run.Out["stderr"])
	}
	// A long text of multi-byte runes, which no chunk may split.
	lines := a.Commands(t, box.ID, `for i in $(seq 1 20000); do printf '😀€ä'; done`).All(t)
	if got := rig.Output(lines, "stdout"); got != strings.Repeat("😀€ä", 20000) {
		t.Errorf("%d bytes of text", len(got))
	}
}

// TestOutputIsNotParsedAsFraming covers A09: output that looks like framing is passed through.
func TestOutputIsNotParsedAsFraming(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	nasty := "\x01\x01\x01\x02\x02\x02__DONE__\n\n\ndata: {}\nid: 7\nevent: end\n\n: x\nretry: 1\n" +
		`{"type":"end","exit_code":0}` + "\n" + `"}` + "\n\\u0000\\n\u2028\u2029\x7f" +
		string(rig.Seal(2, []byte("{}"))) + "\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n\x1b[0m\x00\x00\x00\x00\x00"
	cmd := "printf %s " + base64.StdEncoding.EncodeToString([]byte(nasty)) + " | base64 -d"
	run := runOnAllSurfaces(t, a, box.ID, cmd+"; "+cmd+" >&2; exit 9")
	if run.Stdout() != nasty || string(run.Out["stderr"]) != nasty || run.End.ExitCode != 9 {
		t.Errorf("%q %q %+v", run.Stdout(), run.Out["stderr"], run.End)
	}
	lines := a.Commands(t, box.ID, cmd+"; exit 9").All(t)
	if got := rig.Output(lines, "stdout"); got != nasty {
		t.Errorf("/commands: %q, want %q", got, nasty)
	}
}

// TestOutputOrderOnTerminalsAndPipes covers A10: a terminal has both outputs in one order;
// pipes are each in order.
func TestOutputOrderOnTerminalsAndPipes(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const loop = "for i in $(seq 1 500); do echo o$i; echo e$i >&2; done"
	var both, out, errs strings.Builder
	for i := range 500 {
		fmt.Fprintf(&both, "o%d\r\ne%d\r\n", i+1, i+1)
		fmt.Fprintf(&out, "o%d\n", i+1)
		fmt.Fprintf(&errs, "e%d\n", i+1)
	}
	r, _ := startPTY(t, a, box.ID, loop, 80, 24)
	var tty []byte
	restOf(t, r, func(b []byte) { tty = append(tty, b...) })
	if string(tty) != both.String() {
		t.Errorf("terminal: %.200q", tty)
	}
	if run := runOnAllSurfaces(t, a, box.ID, loop); run.Stdout() != out.String() || string(run.Out["stderr"]) != errs.String() {
		t.Errorf("pipes: %.100q %.100q", run.Stdout(), run.Out["stderr"])
	}
}

// TestGrandchildDoesNotDelayTheEnd covers A11: output of a grandchild that keeps the pipe open
// is recorded, but does not delay the exit.
func TestGrandchildDoesNotDelayTheEnd(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := runOnAllSurfaces(t, a, box.ID, "(sleep 0.5; echo late) & echo early; exit 6")
	if run.Stdout() != "early\nlate\n" || run.End.ExitCode != 6 {
		t.Errorf("%q, end %+v", run.Stdout(), run.End)
	}
	lines := a.Events(t, run.Process, "").All(t)
	var order []string
	for _, l := range lines {
		if l.Type == "stdout" || l.Type == "exited" || l.Type == "end" {
			order = append(order, l.Type)
		}
	}
	if got := strings.Join(order, " "); got != "stdout exited stdout end" {
		t.Errorf("order of the record: %s", got)
	}
	began := time.Now()
	run = a.StartStream(t, box.ID, "sleep 1000 & echo early; exit 7").All(t)
	if d := time.Since(began); run.End == nil || run.End.ExitCode != 7 || run.Stdout() != "early\n" || d > time.Minute {
		t.Errorf("one that never ends: after %v: %q, end %+v, last %s", d, run.Stdout(), run.End, run.Last.Payload)
	}
}

// TestOutputBeforeSIGKILLArrives covers A12: output written immediately before the end by
// SIGKILL arrives.
func TestOutputBeforeSIGKILLArrives(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	all := seq(2000)
	for range 20 {
		run := a.StartStream(t, box.ID, "seq 1 2000; kill -9 $$").All(t)
		if !strings.HasSuffix(run.Stdout(), "\n2000\n") || strings.Count(run.Stdout(), "\n") != 2000 || run.End == nil || run.End.Status != "signal: killed" {
			t.Fatalf("by itself: %d bytes, end %+v", len(run.Stdout()), run.End)
		}
		r := a.StartStream(t, box.ID, "seq 1 2000; exec sleep 60")
		pid := r.Started(t).Event.Start.PID
		out := until(t, r, "1\n")
		a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
		var b strings.Builder
		b.WriteString(out)
		end, _ := restOf(t, r, func(p []byte) { b.Write(p) })
		if got := b.String(); end == nil || end.ExitCode != -1 || !strings.HasPrefix(all, got) {
			t.Fatalf("by SendSignal: %d bytes, end %+v", len(got), end)
		}
	}
}

// seq returns the output of seq 1 n.
func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// TestExitCodes covers A13: every exit code is reported.
func TestExitCodes(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for cmd, want := range map[string]int{
		"exit 0": 0, "exit 1": 1, "exit 2": 2, "exit 126": 126, "exit 127": 127, "exit 130": 130, "exit 255": 255,
		"exit -1": 255, "exit 256": 0, "/etc/passwd": 126, "no-such-command": 127, "sh -c 'kill -TERM $$'; exit": 143,
	} {
		if run := runOnAllSurfaces(t, a, box.ID, cmd); run.End == nil || run.End.ExitCode != want || !run.End.Exited {
			t.Errorf("%s: %+v, want %d", cmd, run.End, want)
		}
	}
	for cmd, want := range map[string]int{"/no/such/file": 127, "/etc/passwd": 126, "no-such-command": 127} {
		run := a.StartSpec(t, box.ID, spec(cmd, nil)).All(t)
		if run.End == nil || run.End.ExitCode != want || len(run.Out["stderr"]) == 0 || run.PID == 0 {
			t.Errorf("cmd %s: %+v, stderr %q, want %d", cmd, run.End, run.Out["stderr"], want)
		}
	}
}

// TestEndBySignal covers A14: the end of a process reports the signal that ended it.
func TestEndBySignal(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	for sig, want := range map[string]string{
		"SEGV": "signal: segmentation fault", "BUS": "signal: bus error", "XCPU": "signal: CPU time limit exceeded",
		"ABRT": "signal: aborted", "KILL": "signal: killed", "TERM": "signal: terminated", "HUP": "signal: hangup",
	} {
		run := runOnAllSurfaces(t, a, box.ID, "ulimit -c 0; kill -"+sig+" $$; sleep 5")
		if e := run.End; e == nil || e.Exited || e.ExitCode != -1 || !strings.HasPrefix(e.Status, want) {
			t.Errorf("%s: %+v, want %s", sig, e, want)
		}
		end := rig.End(t, a.Events(t, run.Process, "").All(t))
		if end.Signal == nil || *end.Signal == 0 || end.Cause != "signaled" {
			t.Errorf("%s: record's end %s", sig, end.Raw)
		}
	}
}

// TestProcessThatClosesItsOutputs covers A16: a process that closed its outputs ends when it
// exits.
func TestProcessThatClosesItsOutputs(t *testing.T) {
	a := api(t)
	began := time.Now()
	run := runOnAllSurfaces(t, a, a.Create(t).ID, "echo before; exec >&- 2>&-; sleep 0.7; exit 3")
	if d := time.Since(began); run.Stdout() != "before\n" || run.End == nil || run.End.ExitCode != 3 || d < 700*time.Millisecond {
		t.Errorf("after %v: %q, end %+v", d, run.Stdout(), run.End)
	}
}

// TestShellExit covers A18: exit in a shell ends the command and leaves the sandbox usable.
func TestShellExit(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	if run := runOnAllSurfaces(t, a, box.ID, "echo a; exit 5; echo b"); run.Stdout() != "a\n" || run.End.ExitCode != 5 {
		t.Errorf("%q, %+v", run.Stdout(), run.End)
	}
	lines := a.Commands(t, box.ID, "exit 5").All(t)
	if end := rig.End(t, lines); end.Raw != `{"type":"end","exit_code":5}` {
		t.Errorf("/commands: %s", end.Raw)
	}
	// The sandbox works as before.
	if run := a.StartStream(t, box.ID, "echo still").All(t); run.Stdout() != "still\n" {
		t.Errorf("%q", run.Stdout())
	}
}

// TestTwentyProcessesKeepTheirOrder covers A19: twenty processes that print 50 MB each at the
// same time keep their order.
func TestTwentyProcessesKeepTheirOrder(t *testing.T) {
	const procs = 20
	lines := 6_600_000 // 50 MB
	if testing.Short() {
		lines = 200_000
	}
	a := api(t)
	box := a.Create(t)
	fails := make(chan error, procs)
	began, total := time.Now(), 0
	streams := make([]*rig.Raw, procs)
	for i := range streams {
		streams[i] = a.StartStream(t, box.ID, fmt.Sprintf("seq 1 %d", lines))
	}
	sizes := make(chan int, procs)
	for _, r := range streams {
		go func() {
			n, err := checkSeq(r, lines)
			sizes <- n
			fails <- err
		}()
	}
	for range procs {
		total += <-sizes
		if err := <-fails; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d MB, %.0f MB/s", total/1e6, float64(total)/1e6/time.Since(began).Seconds())
}

// sequence matches the output of seq piece by piece.
type sequence struct {
	next, last int
	buf, rest  []byte
}

// match checks the next output.
func (s *sequence) match(b []byte) error {
	for len(b) > 0 {
		if len(s.rest) == 0 {
			s.buf = s.buf[:0]
			for i := 0; i < 4096 && s.next <= s.last; i++ {
				s.buf = strconv.AppendInt(s.buf, int64(s.next), 10)
				s.buf = append(s.buf, '\n')
				s.next++
			}
			s.rest = s.buf
		}
		k := min(len(s.rest), len(b))
		if k == 0 || !bytes.Equal(b[:k], s.rest[:k]) {
			return fmt.Errorf("before line %d: got %.60q, want %.60q", s.next, b, s.rest)
		}
		b, s.rest = b[k:], s.rest[k:]
	}
	return nil
}

// done reports whether all output was matched.
func (s *sequence) done() bool { return s.next > s.last && len(s.rest) == 0 }

// checkSeq reads a stream that must print the numbers up to lines, and returns the number of
// bytes.
func checkSeq(r *rig.Raw, lines int) (n int, err error) {
	want := sequence{next: 1, last: lines}
	var buf []byte
	ended := false
	for {
		e, err := r.Next()
		if err != nil {
			return n, err
		}
		if e.Flags&rig.FlagEnd != 0 {
			if string(e.Payload) != "{}" || !ended || !want.done() {
				return n, fmt.Errorf("end %v, before line %d: %s", ended, want.next, e.Payload)
			}
			return n, nil
		}
		ended = ended || bytes.HasPrefix(e.Payload, []byte(`{"event":{"end":{"exitCode":0,`))
		if buf, err = fastOutput(e.Payload, buf); err != nil {
			return n, err
		}
		n += len(buf)
		if err := want.match(buf); err != nil {
			return n, err
		}
	}
}

// TestInputAfterExitIsRejected covers A24: input for a process that has ended or does not
// exist is a typed error at once.
func TestInputAfterExitIsRejected(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	run := a.StartSpec(t, box.ID, spec("/bin/true", nil, "stdin", true)).All(t)
	for _, m := range []string{"SendInput", "CloseStdin"} {
		began := time.Now()
		wantCode(t, m, a.RPC(t, box.ID, "/process.Process/"+m, byPID(run.PID, "input", stdin([]byte("x")))), http.StatusNotFound, "not_found")
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("%s took %v", m, d)
		}
	}
	ans := a.Do(t, http.MethodPost, "/commands/"+run.Process+"/stdin", "x", "E2b-Sandbox-Id", box.ID)
	if ans.Status != http.StatusNotFound {
		t.Errorf("/commands: %v", ans)
	}
}

// TestStdinClosedTwice covers A25: closing stdin twice is harmless.
func TestStdinClosedTwice(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	r := a.StartSpec(t, box.ID, spec("/bin/bash", []string{"-c", "cat; sleep 60"}, "stdin", true))
	pid := r.Started(t).Event.Start.PID
	if ans := a.RPC(t, box.ID, "/process.Process/CloseStdin", byPID(pid)); ans.Status != http.StatusOK {
		t.Errorf("first: %v", ans)
	}
	ans := a.RPC(t, box.ID, "/process.Process/CloseStdin", byPID(pid))
	if ans.Status != http.StatusOK {
		wantCode(t, "second", ans, http.StatusInternalServerError, "internal")
	}
	wantCode(t, "input after it", a.RPC(t, box.ID, "/process.Process/SendInput", byPID(pid, "input", stdin([]byte("x")))),
		http.StatusInternalServerError, "internal")
	a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
	if end, _ := rest(t, r); end == nil {
		t.Error("no end")
	}
}

// TestInputOfTheWrongKindIsRejected covers A26: terminal input works only with a terminal, and
// stdin only without one.
func TestInputOfTheWrongKindIsRejected(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	pidOf := func(r *rig.Raw) uint32 { return r.Started(t).Event.Start.PID }
	deaf := pidOf(a.StartStream(t, box.ID, "sleep 60"))
	pipe := pidOf(a.StartSpec(t, box.ID, spec("/bin/cat", nil, "stdin", true)))
	_, tty := startPTY(t, a, box.ID, "cat", 80, 24)
	for _, tt := range []struct {
		name  string
		pid   uint32
		input any
		ok    bool
	}{
		{"stdin of a process without input", deaf, stdin([]byte("x")), false},
		{"terminal input for a pipe", pipe, keys("x"), false},
		{"stdin for a pipe", pipe, stdin([]byte("x")), true},
		{"stdin for a terminal", tty, stdin([]byte("x")), false},
		{"terminal input for a terminal", tty, keys("x"), true},
	} {
		ans := a.RPC(t, box.ID, "/process.Process/SendInput", byPID(tt.pid, "input", tt.input))
		if tt.ok && ans.Status != http.StatusOK {
			t.Errorf("%s: %v", tt.name, ans)
		}
		if !tt.ok {
			wantCode(t, tt.name, ans, http.StatusInternalServerError, "internal")
		}
	}
	if ans := a.RPC(t, box.ID, "/process.Process/SendInput", byPID(pipe)); ans.Status == http.StatusOK {
		t.Errorf("no input at all: %v", ans)
	}
}
