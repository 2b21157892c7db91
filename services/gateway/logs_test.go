package gateway_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

// output is output at a point in time.
type output struct {
	at   time.Time
	data []byte
}

// record stores the record of an ended process with the given output.
func (f *fixture) record(m createdSandbox, begin time.Time, all []output) {
	f.t.Helper()
	st, _ := f.view.Sandbox(sandbox.ID(m.ID))
	ref := record.Ref{Host: f.host.Name, ID: process.NewID(sandbox.ID(m.ID))}
	sum := process.Summary{
		ID: ref.ID, Tenant: st.Tenant, Host: ref.Host, Epoch: 7, Spec: process.Spec{Cmd: "said"},
		PID: 1, Started: begin, Ended: begin, Exit: &process.Exit{Cause: process.CauseExited, Code: new(int32)},
	}
	if n := len(all); n > 0 {
		sum.Ended = all[n-1].at
	}
	evs := []process.Event{
		{Seq: 1, Time: begin, Body: process.Accepted{Spec: sum.Spec, Tenant: sum.Tenant}},
		{Seq: 2, Time: begin, Body: process.Started{PID: 1}},
	}
	out := uint64(0)
	for _, s := range all {
		evs = append(evs, process.Event{
			Seq: process.Seq(len(evs) + 1), Time: s.at,
			Body: process.Wrote{Stream: process.Stdout, Offset: out, Data: s.data},
		})
		out += uint64(len(s.data))
	}
	evs = append(evs, process.Event{Seq: process.Seq(len(evs) + 1), Time: sum.Ended, Body: process.Finished{Exit: *sum.Exit}})
	w := f.log.Writer(ref, 7)
	for some := range slices.Chunk(evs, 64) {
		if err := w.Append(f.t.Context(), some); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, err := f.log.PutSummary(f.t.Context(), &sum, 0); err != nil {
		f.t.Fatal(err)
	}
}

// entry is a line in a response of /v2/sandboxes/ID/logs.
type entry struct {
	Timestamp time.Time
	Message   string
}

// page returns one page of a sandbox's logs.
func (f *fixture) page(m createdSandbox, query string) []entry {
	f.t.Helper()
	var got struct{ Logs []entry }
	f.do("GET", "/v2/sandboxes/"+m.ID+"/logs?"+query, "").want(f.t, query, 200, "").decode(f.t, &got)
	return got.Logs
}

// pages reads a sandbox's logs as clients do: each page begins at the time of the last line of
// the one before, and a line on both counts once. It returns the lines and the number of
// pages.
func (f *fixture) pages(m createdSandbox, query string) (lines []string, n int) {
	f.t.Helper()
	seen, cursor := make(map[string]bool), ""
	for ; n < 1000; n++ {
		p := f.page(m, query+cursor)
		fresh := 0
		for _, e := range p {
			if id := e.Timestamp.String() + e.Message; !seen[id] {
				seen[id] = true
				fresh++
				if !strings.HasPrefix(e.Message, "millrace: ") {
					lines = append(lines, e.Message)
				}
			}
		}
		if fresh == 0 {
			return lines, n
		}
		cursor = "&cursor=" + strconv.FormatInt(p[len(p)-1].Timestamp.UnixMilli(), 10)
	}
	f.t.Fatalf("%s: too many pages", query)
	return nil, 0
}

// same fails unless two lists of lines are equal.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	t.Errorf("%s: %d lines, want %d; line %d is %.20q, want %.20q", what, len(got), len(want), i,
		append(got, "nothing")[min(i, len(got))], append(want, "nothing")[min(i, len(want))])
}

func reversed(s []string) []string {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

// The record is longer than a page scans: 34 MiB, and then LAST.
func TestLogsOfALongRecordAreComplete(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var all, beside []output // another process prints a little meanwhile
	var lines []string
	for i := range 544 {
		var b bytes.Buffer
		for j := range 64 {
			line := fmt.Sprintf("%06d ", 64*i+j)
			line += strings.Repeat("x", 1023-len(line))
			b.WriteString(line + "\n")
			lines = append(lines, line)
		}
		cut := 100 * i % 1000 // events end within lines
		all = append(all,
			output{begin.Add(time.Duration(10*i) * time.Millisecond), b.Bytes()[:cut]},
			output{begin.Add(time.Duration(10*i+1) * time.Millisecond), b.Bytes()[cut:]})
		if i%100 == 50 {
			line := fmt.Sprintf("beside %d", i)
			beside = append(beside, output{begin.Add(time.Duration(10*i+5) * time.Millisecond), []byte(line + "\n")})
			lines = append(lines, line)
		}
	}
	all = slices.DeleteFunc(all, func(s output) bool { return len(s.data) == 0 })
	all = append(all, output{begin.Add(10 * time.Second), []byte("LAST\n")})
	lines = append(lines, "LAST")
	f.record(m, begin, all)
	f.record(m, begin, append(beside, output{begin.Add(11 * time.Second), []byte("\n")}))
	lines = append(lines, "")

	newest := f.page(m, "direction=backward&limit=3")
	var got []string
	for _, e := range newest {
		got = append(got, e.Message)
	}
	same(t, "the newest", got, reversed(lines[len(lines)-3:]))

	late := begin.Add(5300*time.Millisecond + 1500*time.Microsecond).UnixMilli()
	next := f.page(m, fmt.Sprintf("limit=1&cursor=%d", late))
	if len(next) != 1 || next[0].Message != lines[64*530+5] {
		t.Errorf("from a cursor: %.100v", next)
	}
	before := f.page(m, fmt.Sprintf("direction=backward&limit=1&cursor=%d", late-2))
	if len(before) != 1 || before[0].Message != lines[64*530+4] {
		t.Errorf("back from a cursor: %.100v", before)
	}
	for _, direction := range []string{"forward", "backward"} {
		found, n := f.pages(m, "search=LAST&direction="+direction)
		same(t, "search "+direction, found, []string{"LAST"})
		if n > 4 {
			t.Errorf("search %s took %d pages", direction, n)
		}
	}
	found, _ := f.pages(m, "search=000000&direction=backward")
	same(t, "search for the first, backward", found, lines[:1])
	whole, _ := f.pages(m, "direction=forward")
	same(t, "forward", whole, lines)
	whole, _ = f.pages(m, "direction=backward")
	same(t, "backward", whole, reversed(lines))
}

// Lines of concurrent processes are sorted by time, across pages.
func TestLogsOfConcurrentProcessesAreSorted(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var lines []string
	records := make([][]output, 5) // the first prints most, the last nothing
	for i := range 600 {
		line := fmt.Sprintf("%04d", i)
		lines = append(lines, line)
		r := min(i%7, 3)
		records[r] = append(records[r], output{begin.Add(time.Duration(i) * time.Millisecond), []byte(line + "\n")})
	}
	for _, all := range records {
		f.record(m, begin, all)
	}
	for _, limit := range []string{"7", "50", "1000"} {
		got, _ := f.pages(m, "limit="+limit)
		same(t, "forward, limit "+limit, got, lines)
		got, _ = f.pages(m, "direction=backward&limit="+limit)
		same(t, "backward, limit "+limit, got, reversed(lines))
	}
	got, _ := f.pages(m, "search=9&limit=3")
	same(t, "search", got, slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.Contains(s, "9") }))
}

// With very many processes a page scans some of them, and returns how far it got.
func TestLogsOfManyProcessesArePaged(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var lines []string
	for i := range 300 {
		at := begin.Add(time.Duration(10*i) * time.Millisecond)
		lines = append(lines, fmt.Sprintf("%04d", i))
		f.record(m, at, []output{{at.Add(25 * time.Millisecond), []byte(lines[i] + "\n")}})
	}
	for _, direction := range []string{"forward", "backward"} {
		got, n := f.pages(m, "search=0&direction="+direction)
		want := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.Contains(s, "0") })
		if direction == "backward" {
			want = reversed(want)
		}
		same(t, direction, got, want)
		if n < 2 {
			t.Errorf("%s: one page scanned all", direction)
		}
	}
}

// A cursor cannot distinguish lines of the same millisecond: a client whose page is full of
// them gets a note that others are left out, and continues after them.
func TestLogsContinueAfterAFullMillisecond(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	f.record(m, begin, []output{
		{begin, []byte("first\n")},
		{begin.Add(10 * time.Millisecond), []byte(strings.Repeat("many\n", 20))},
		{begin.Add(11 * time.Millisecond), []byte("last\n")},
	})
	for _, tt := range []struct {
		direction string
		want      []string
	}{{"forward", []string{"first", "many", "last"}}, {"backward", []string{"last", "many", "first"}}} {
		got, _ := f.pages(m, "limit=5&direction="+tt.direction)
		same(t, tt.direction, got, tt.want)
	}
	all := f.page(m, fmt.Sprintf("limit=5&cursor=%d", begin.Add(10*time.Millisecond).UnixMilli()))
	if len(all) != 5 || !strings.Contains(all[4].Message, "left out") {
		t.Errorf("the full millisecond: %+v", all)
	}
}

// The part of a line before a cursor belongs to it.
func TestLineAcrossTheCursorIsWhole(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	begin := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var all []output
	for i := range 300 { // like keys typed in a terminal
		all = append(all, output{begin.Add(time.Duration(i) * time.Millisecond), []byte{'a' + byte(i%26)}})
	}
	all = append(all, output{begin.Add(time.Second), []byte("\nmore\nhalf")})
	f.record(m, begin, all)
	cursor := fmt.Sprintf("&cursor=%d", begin.Add(290*time.Millisecond).UnixMilli())
	got := f.page(m, "limit=9"+cursor)
	if len(got) != 3 || len(got[0].Message) != 300 || got[1].Message != "more" || got[2].Message != "half" {
		t.Errorf("from within a line: %+v", got)
	}
	got = f.page(m, "limit=9&direction=backward")
	if len(got) != 3 || got[0].Message != "half" || len(got[2].Message) != 300 {
		t.Errorf("backward: %+v", got)
	}
	if got = f.page(m, "direction=backward"+cursor); len(got) != 0 {
		t.Errorf("before the end of the line: %+v", got)
	}
}
