package logs

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

func newScan(limit int, backward bool) *scan {
	q := logQuery{limit: limit, backward: backward, start: math.MinInt64}
	return &scan{page: newPage(q), reach: &reach{}, partial: map[process.Stream][]byte{}, last: time.Now()}
}

func TestLinesOfOutput(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	tests := []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"a line", []string{"a\n"}, []string{"a"}},
		{"a line in pieces", []string{"a", "b", "\n", "c\n"}, []string{"ab", "c"}},
		{"no newline at the end", []string{"a\nb"}, []string{"a"}}, // read adds the rest
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"carriage returns", []string{"a\r\nb\r\n"}, []string{"a", "b"}},
		{"not UTF-8", []string{"a\xffb\n"}, []string{"a\ufffdb"}},
		{"a line too long", []string{long, "y\n"}, []string{long, "y"}},
		{"a line that just fits", []string{long + "\n"}, []string{long}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScan(maxLogs, false)
			for _, c := range tt.chunks {
				s.wrote(&process.Wrote{Stream: process.Stdout, Data: []byte(c)})
			}
			var got []string
			for _, e := range s.lines {
				got = append(got, e.Message)
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") || len(got) != len(tt.want) {
				t.Errorf("%d lines %.80q, want %d", len(got), got, len(tt.want))
			}
		})
	}
}

// A large number of newlines must not use unbounded memory.
func TestLinesAreBounded(t *testing.T) {
	for _, backward := range []bool{false, true} {
		s := newScan(10, backward)
		data := bytes.Repeat([]byte("\n"), 1<<20)
		s.wrote(&process.Wrote{Stream: process.Stdout, Data: data})
		if len(s.lines) > 20 || cap(s.lines) > 64 {
			t.Errorf("backward %v: %d lines kept", backward, len(s.lines))
		}
	}
}

// The lines of many records are bounded by one page, in any order.
func TestLinesOfManyRecordsAreBounded(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	for _, backward := range []bool{false, true} {
		pg := newPage(logQuery{limit: 10, backward: backward, start: math.MinInt64})
		for record := range 100 {
			var lines []logEntry
			for line := range 10 { // the records' lines alternate
				lines = append(lines, logEntry{Timestamp: begin.Add(time.Duration(100*line+(37*record)%100) * time.Second)})
			}
			if pg.add(lines); len(pg.entries) > pg.q.limit || cap(pg.entries) > 100 {
				t.Fatalf("backward %v: %d lines kept, capacity %d", backward, len(pg.entries), cap(pg.entries))
			}
		}
		first, step := begin, time.Second
		if backward {
			first, step = begin.Add(999*time.Second), -time.Second
		}
		for i, e := range pg.answer() {
			if want := first.Add(time.Duration(i) * step); !e.Timestamp.Equal(want) {
				t.Errorf("backward %v: line %d is of %v, want %v", backward, i, e.Timestamp, want)
			}
		}
	}
}

// A page that reached a read limit has a notice, and the next page makes progress.
func TestAPageThatIsCutHasANotice(t *testing.T) {
	line := func(ms int64) logEntry { return logEntry{Timestamp: time.UnixMilli(ms), Message: "x"} }
	tests := []struct {
		name     string
		backward bool
		cursor   int64
		limit    int
		lines    []int64
		end      int64 // where the limit was reached, as a depth; 0: nowhere
		want     int   // lines except for the notice
		notice   int64 // its time; 0: no notice
	}{
		{"nothing", false, 1000, 3, nil, 0, 0, 0},
		{"all", false, 1000, 3, []int64{1000, 1001}, 0, 2, 0},
		{"full", false, 1000, 3, []int64{1000, 1000, 1001, 1001}, 0, 3, 0},
		{"cut", false, 1000, 3, []int64{1000, 1005}, 1005, 1, 1004},
		{"cut, backward", true, 1000, 3, []int64{1000, 995}, -995, 1, 996},
		{"full before it is cut", false, 1000, 2, []int64{1000, 1001, 1007}, 1005, 2, 0},
		{"cut where it begins", false, 1000, 3, []int64{1000}, 1000, 1, 1001},
		{"cut where it begins, backward", true, 1000, 3, []int64{1000}, -1000, 1, 999},
		{"cut where it begins, one line", false, 1000, 1, []int64{1000}, 1000, 0, 1001},
		{"a millisecond of more than a page", false, 1000, 3, []int64{1000, 1000, 1000, 1000}, 0, 2, 1001},
		{"of which one line is wanted", false, 1000, 1, []int64{1000, 1000}, 0, 1, 0},
		{"a millisecond of a page", false, 1000, 3, []int64{1000, 1000, 1000, 1001}, 0, 3, 0},
		{"a later millisecond of more than a page", false, 999, 3, []int64{1000, 1000, 1000, 1000}, 0, 3, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := logQuery{limit: tt.limit, backward: tt.backward}
			q.start = q.depth(time.UnixMilli(tt.cursor))
			pg := newPage(q)
			var lines []logEntry
			for _, ms := range tt.lines {
				lines = append(lines, line(ms))
			}
			if tt.end != 0 {
				pg.end(tt.end)
			}
			pg.add(lines)
			got, notice := pg.answer(), int64(0)
			if n := len(got); n > 0 && got[n-1].Message != "x" {
				got, notice = got[:n-1], got[n-1].Timestamp.UnixMilli()
			}
			if len(got) != tt.want || notice != tt.notice {
				t.Errorf("%d lines, a notice at %d; want %d, %d", len(got), notice, tt.want, tt.notice)
			}
		})
	}
}

// The number of processes is limited, too.
func TestVeryManyProcessesAtOnceAreRefused(t *testing.T) {
	all := make([]process.Summary, maxLogRunning+1)
	for i := range all {
		all[i].Started = time.UnixMilli(1000)
	}
	q := logQuery{limit: 1}
	q.start = 2000
	if err := newPage(q).fill(t.Context(), nil, all); !kind.Is(err, kind.Exhausted) {
		t.Errorf("%v, want exhausted", err)
	}
}
