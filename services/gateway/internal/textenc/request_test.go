package textenc

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

func TestAcceptChoosesSSEOnlyWhenPreferred(t *testing.T) {
	tests := []struct {
		accept string
		want   bool
	}{
		{"", false}, {"*/*", false}, {"text/event-stream", true}, {"TEXT/EVENT-STREAM; charset=utf-8", true},
		{"application/x-ndjson", false}, {"application/x-ndjson, text/event-stream", true},
		{"application/x-ndjson;q=1, text/event-stream;q=0.5", false}, {"text/event-stream, */*;q=0.1", true},
		{"text/event-stream;q=0", false}, {"text/event-stream;q=NaN", false}, {"text/html", false}, {",;,", false},
	}
	for _, tt := range tests {
		t.Run(tt.accept, func(t *testing.T) {
			if got := WantsSSE(tt.accept); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestKeepaliveIsWholeSecondsWithinBounds(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
	}{
		{"", 7}, {"5", 5 * time.Second}, {" 5 ", 5 * time.Second}, {"0", 7}, {"-1", 7}, {"1.5", 7}, {"abc", 7},
		{"4000000000", time.Hour}, {"99999999999999999999", 7},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			if got := Keepalive(tt.value, 7); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSignalIsANameOrANumber(t *testing.T) {
	tests := []struct {
		in   string
		want Signal
		ok   bool
	}{
		{`15`, 15, true}, {`"SIGTERM"`, 15, true}, {`"term"`, 15, true}, {`"KILL"`, 9, true}, {`null`, 0, true}, {`64`, 64, true},
		{`0`, 0, false}, {`65`, 0, false}, {`-9`, 0, false}, {`"SIGSIGTERM"`, 0, false}, {`""`, 0, false}, {`{}`, 0, false}, {`1e18`, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			var got Signal
			err := json.Unmarshal([]byte(tt.in), &got)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("got %v, %v", got, err)
			}
			if err != nil && !kind.Is(err, kind.Invalid) {
				t.Errorf("kind %v", kind.Of(err))
			}
		})
	}
}

func TestSummaryNeverShowsAnUnobservedExitAsZero(t *testing.T) {
	code := int32(0)
	tests := []struct {
		name string
		exit *process.Exit
		want string
	}{
		{"running", nil, "null"},
		{"exited", &process.Exit{Code: &code}, "0"},
		{"signaled", &process.Exit{Signal: 9}, "-1"},
		{"lost", &process.Exit{Cause: process.CauseHostLost}, "null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := SummaryOf(&process.Summary{ID: "01jd0000000000000000000000-i1", PID: 1, Exit: tt.exit})
			b, err := json.Marshal(s.ExitCode)
			if err != nil || string(b) != tt.want {
				t.Errorf("got %s, %v", b, err)
			}
			if (s.State == StateEnded) != (tt.exit != nil) {
				t.Errorf("state %q", s.State)
			}
		})
	}
}
