package natsd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRebuiltIndexesAreNotWarnings(t *testing.T) {
	for format, warns := range map[string]bool{
		"Filestore [%s] Stream state outdated, last block has additional entries, will rebuild": false,
		"Filestore [%s] Stream state detected prior state, could not locate msg block 7":        false,
		"Filestore [%s] Stream state checksum did not match":                                    true,
		"Filestore [%s] indexCacheBuf corrupt record state":                                     true,
	} {
		var log bytes.Buffer
		logger{l: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}.Warnf(format, "PROC")
		if got := strings.Contains(log.String(), "level=WARN"); got != warns {
			t.Errorf("%q: logged as a warning is %v, want %v", format, got, warns)
		}
	}
}

// A copy of a stream that waits for a leader again and again is noticed by the server's log.
func TestCopiesThatCannotCatchUp(t *testing.T) {
	stuck := make(chan struct{}, 1)
	l := logger{stuck: stuck}
	l.Errorf("Error applying stream entries to '%s > %s': %v", "$G", "IO", "catchup aborted, no leader for stream '$G > IO'")
	if len(stuck) != 1 {
		t.Error("not noticed")
	}
	<-stuck
	l.Errorf("Error applying stream entries to '%s > %s': %v", "$G", "IO", "first sequence mismatch")
	if len(stuck) != 0 {
		t.Error("another error was taken for it")
	}
}

func TestRepeated(t *testing.T) {
	var r repeated
	begun := time.Unix(1000, 0)
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{
		{0, false},
		{5 * time.Second, false},
		{29 * time.Second, false}, // a gap of more than 15 s: it begins again
		{40 * time.Second, false},
		{50 * time.Second, false},
		{59 * time.Second, true},
		{64 * time.Second, false}, // after the restart
	} {
		if got := r.lasts(begun.Add(tt.after)); got != tt.want {
			t.Errorf("after %v: %v, want %v", tt.after, got, tt.want)
		}
	}
}
