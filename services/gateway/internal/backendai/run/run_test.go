package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
)

// record is the events of a run's process.
type record []process.Event

func (r *record) add(b process.Body) {
	*r = append(*r, process.Event{Seq: process.Seq(len(*r) + 1), Body: b})
}

// printed returns a record whose standard output comes in events of n bytes.
func printed(n int, lines ...string) record {
	var r record
	r.add(process.Accepted{})
	r.add(process.Started{PID: 1})
	all := strings.Join(lines, "\n") + "\n"
	for i := 0; i < len(all); i += n {
		r.add(process.Wrote{Stream: process.Stdout, Offset: uint64(i), Data: []byte(all[i:min(i+n, len(all))])})
	}
	return r
}

func (r record) exited(x process.Exit) record {
	r.add(process.Exited{Exit: x})
	r.add(process.Finished{Exit: x})
	return r
}

// source yields a record's events after a position, one per call.
type source struct{ left record }

func (r record) after(at run.Position) *source { return &source{r[at.After:]} }

func (s *source) Next(context.Context, time.Duration) ([]process.Event, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	batch := s.left[:1]
	s.left = s.left[1:]
	return batch, nil
}

func (s *source) Close() {}

// brief returns the status, the exit code and the console of a result.
func brief(t *testing.T, r run.Result) string {
	t.Helper()
	console, err := json.Marshal(r.Console)
	if err != nil {
		t.Fatal(err)
	}
	code := "-"
	if r.ExitCode != nil {
		code = fmt.Sprint(*r.ExitCode)
	}
	if r.Options != nil {
		code = fmt.Sprintf("password %v", r.Options.Password)
	}
	return string(r.Status) + " " + code + " " + string(console)
}

var zero = int32(0)

// B-003, B-026, B-027, B-028: the results of runs. However the output is split into events, and
// whichever gateway reads each result, they are the same.
func TestResults(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		exit  process.Exit
		want  []string
	}{
		{"output is merged by type", []string{
			`{"type":"keepalive"}`, `{"type":"stdout","text":"a"}`, `{"type":"stdout","text":"b\n"}`, `{"type":"stderr","text":"ä"}`, `{"type":"stdout","text":"c"}`,
			`{"type":"end_of_execution","code":0}`,
		}, process.Exit{Code: &zero}, []string{`finished 0 [["stdout","ab\n"],["stderr","ä"],["stdout","c"]]`}},
		{"values", []string{
			`{"type":"result","text":"1","is_main_result":true}`, `{"type":"result","text":"t","html":"<b>"}`, `{"type":"result","png":"iVBO","text":"Figure"}`,
			`{"type":"result","png":"iVBQ","text":"Figure"}`, `{"type":"result","svg":"<svg/>"}`, `{"type":"end_of_execution","code":0}`,
		}, process.Exit{Code: &zero}, []string{`finished 0 [["stdout","1\n"],["html","\u003cb\u003e"],["media",["image/png","iVBO"]],["media",["image/png","iVBQ"]],["media",["image/svg+xml","\u003csvg/\u003e"]]]`}},
		{"an error", []string{`{"type":"error","name":"E","value":"v","traceback":"E: v"}`, `{"type":"end_of_execution","code":1}`}, process.Exit{Code: &zero}, []string{`finished 1 [["stderr","E: v\n"]]`}},
		{"input", []string{
			`{"type":"stdout","text":"name? "}`, `{"type":"input"}`, `{"type":"stdout","text":"hello"}`, `{"type":"input","password":true}`, `{"type":"end_of_execution","code":0}`,
		}, process.Exit{Code: &zero}, []string{`waiting-input password false [["stdout","name? "]]`, `waiting-input password true [["stdout","hello"]]`, `finished 0 []`}},
		{"a batch", []string{
			`{"type":"step","name":"clean","code":0}`, `{"type":"stdout","text":"b"}`, `{"type":"step","name":"build","code":0}`, `{"type":"stdout","text":"e"}`, `{"type":"end_of_execution","code":3}`,
		}, process.Exit{Code: &zero}, []string{`clean-finished 0 []`, `build-finished 0 [["stdout","b"]]`, `finished 3 [["stdout","e"]]`}},
		{"a failed build", []string{
			`{"type":"step","name":"clean","code":0}`, `{"type":"step","name":"build","code":2}`, `{"type":"end_of_execution","code":127}`,
		}, process.Exit{Code: &zero}, []string{`clean-finished 0 []`, `build-finished 2 []`, `finished 127 []`}},
		{"killed", []string{`{"type":"stdout","text":"a"}`, `{"type":"stdo`}, process.Exit{Signal: 9, Cause: process.CauseKilled}, []string{`finished 130 [["stdout","a"]]`}},
		{"timed out", []string{`{"type":"stdout","text":"a"}`}, process.Exit{Signal: 9, Cause: process.CauseTimeout}, []string{`exec-timeout - [["stdout","a"]]`}},
		{"lines that are not results", []string{`x`, ``, `[]`, `{"type":1}`, `{"type":"unknown"}`, `{"type":"end_of_execution","code":0}`}, process.Exit{Code: &zero}, []string{`finished 0 []`}},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s in events of %d", tt.name, size), func(t *testing.T) {
				r := printed(size, tt.lines...).exited(tt.exit)
				one := run.Follow(r.after(run.Position{}), run.Position{})
				var at run.Position
				for i, want := range tt.want {
					// The same reader goes on, and another gateway does.
					for _, f := range []*run.Follower{one, run.Follow(r.after(at), at)} {
						got, err := f.Next(t.Context(), time.Minute)
						if err != nil || brief(t, got) != want {
							t.Fatalf("result %d: %s, %v; want %s", i, brief(t, got), err, want)
						}
						if f != one {
							at = f.Position()
						}
					}
				}
				// After the end the status stays.
				last := run.Follow(r.after(at), at)
				got, err := last.Next(t.Context(), time.Minute)
				if end := tt.want[len(tt.want)-1]; err != nil || strings.Fields(brief(t, got))[0] != strings.Fields(end)[0] {
					t.Errorf("after the end: %s, %v", brief(t, got), err)
				}
			})
		}
	}
}

// A result has at most 524,288 characters of a type; the rest is in the next one.
func TestResultsAreLimited(t *testing.T) {
	var lines []string
	for range 30 {
		lines = append(lines, `{"type":"stdout","text":"`+strings.Repeat("x", 60_000)+`"}`)
	}
	r := printed(64<<10, append(lines, `{"type":"end_of_execution","code":0}`)...).exited(process.Exit{Code: &zero})
	var at run.Position
	total, results := 0, 0
	for status := run.Continued; status != run.Finished; results++ {
		f := run.Follow(r.after(at), at)
		got, err := f.Next(t.Context(), time.Minute)
		if err != nil || len(got.Console) != 1 || len(got.Console[0].Text) > 524_288 {
			t.Fatalf("%v: %d items", err, len(got.Console))
		}
		total += len(got.Console[0].Text)
		at, status = f.Position(), got.Status
	}
	if total != 30*60_000 || results != 4 {
		t.Errorf("%d characters in %d results", total, results)
	}
}

// A process that never started is a run with an error.
func TestFailedStart(t *testing.T) {
	var r record
	r.add(process.Accepted{})
	r.add(process.Failed{Message: "no such program"})
	r.add(process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}})
	got, err := run.Follow(r.after(run.Position{}), run.Position{}).Next(t.Context(), time.Minute)
	if want := `finished 127 [["stderr","no such program\n"]]`; err != nil || brief(t, got) != want {
		t.Errorf("%s, %v; want %s", brief(t, got), err, want)
	}
}

// waiting yields events and then nothing.
type waiting struct{ source }

func (w *waiting) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if len(w.left) == 0 {
		return nil, nil
	}
	return w.source.Next(ctx, idle)
}

// B-025: a run without news is continued.
func TestNextReturnsAfterTheWait(t *testing.T) {
	r := printed(1<<20, `{"type":"stdout","text":"a"}`, `{"type":"std`)
	f := run.Follow(&waiting{source{r}}, run.Position{})
	for _, want := range []string{`continued - [["stdout","a"]]`, `continued - []`} {
		if got, err := f.Next(t.Context(), 10*time.Millisecond); err != nil || brief(t, got) != want {
			t.Errorf("%s, %v; want %s", brief(t, got), err, want)
		}
	}
}
