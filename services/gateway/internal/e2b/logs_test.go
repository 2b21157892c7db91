package e2b

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
)

func TestLinesOfOutput(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	tests := []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"a line", []string{"a\n"}, []string{"a"}},
		{"a line in pieces", []string{"a", "b", "\n", "c\n"}, []string{"ab", "c"}},
		{"no newline at the end", []string{"a\nb"}, []string{"a"}}, // read gives the rest
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"carriage returns", []string{"a\r\nb\r\n"}, []string{"a", "b"}},
		{"not UTF-8", []string{"a\xffb\n"}, []string{"a\ufffdb"}},
		{"a line too long", []string{long, "y\n"}, []string{long, "y"}},
		{"a line that just fits", []string{long + "\n"}, []string{long}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scan{q: &logQuery{limit: maxLogs}, half: map[process.Stream][]byte{}, last: time.Now()}
			for _, c := range tt.chunks {
				s.wrote(&process.Wrote{Stream: process.Stdout, Data: []byte(c)})
			}
			var got []string
			for _, e := range s.out {
				got = append(got, e.Message)
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") || len(got) != len(tt.want) {
				t.Errorf("%d lines %.80q, want %d", len(got), got, len(tt.want))
			}
		})
	}
}

// Newlines alone must not cost memory without end.
func TestLinesAreBounded(t *testing.T) {
	for _, backward := range []bool{false, true} {
		s := &scan{q: &logQuery{limit: 10, backward: backward}, half: map[process.Stream][]byte{}}
		data := bytes.Repeat([]byte("\n"), 1<<20)
		s.wrote(&process.Wrote{Stream: process.Stdout, Data: data})
		if len(s.out) > 20 || cap(s.out) > 64 {
			t.Errorf("backward %v: %d lines kept", backward, len(s.out))
		}
	}
}

// What is kept of many records is one page, whatever their order.
func TestLinesOfManyRecordsAreBounded(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	for _, backward := range []bool{false, true} {
		q := &logQuery{limit: 10, backward: backward}
		var out []logEntry
		for record := range 100 {
			var lines []logEntry
			for line := range 10 { // the records' lines come in turn
				lines = append(lines, logEntry{Timestamp: begin.Add(time.Duration(100*line+(37*record)%100) * time.Second)})
			}
			if out = q.wanted(append(out, lines...)); len(out) > q.limit || cap(out) > 100 {
				t.Fatalf("backward %v: %d lines kept, room for %d", backward, len(out), cap(out))
			}
		}
		first := begin
		if backward {
			first = begin.Add(990 * time.Second)
		}
		for i, e := range out {
			if want := first.Add(time.Duration(i) * time.Second); !e.Timestamp.Equal(want) {
				t.Errorf("backward %v: line %d is of %v, want %v", backward, i, e.Timestamp, want)
			}
		}
	}
}

func TestMetadataFilter(t *testing.T) {
	tests := []struct {
		in   string
		want map[string]string // nil: an error
	}{
		{"", map[string]string{}},
		{"k=v%2526w", map[string]string{"k": "v&w"}},
		{"a=1&b=2", map[string]string{"a": "1", "b": "2"}},
		{"a%253D=%2520", map[string]string{"a=": " "}},
		{"a=%25zz", nil},
		{"a=%zz", nil},
	}
	for _, tt := range tests {
		got, err := parseMetadata(tt.in)
		if (err != nil) != (tt.want == nil) || len(got) != len(tt.want) {
			t.Errorf("%q: %v, %v; want %v", tt.in, got, err, tt.want)
			continue
		}
		for k, v := range tt.want {
			if got[k] != v {
				t.Errorf("%q: %v, want %v", tt.in, got, tt.want)
			}
		}
	}
}
