package procs

import (
	"testing"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
)

// TestSilenceCountsOnlyWhileOutputCanBeRead: the record of an exited process ends after
// silence on its pipes, but not if the spool was full or the sandbox paused for that time.
func TestSilenceCountsOnlyWhileOutputCanBeRead(t *testing.T) {
	const long = time.Hour
	for _, tt := range []struct {
		name         string
		wrote        time.Duration // time ago, as all of these
		ready, check time.Duration
		ends         bool
	}{
		{"no output", long, long, 0, true},
		{"recent output after GraceMax", 0, long, 0, true}, // Limits.GraceMax has passed
		{"the spool has space again, but nothing was read yet", long, 0, 0, false},
		{"the spool had space again, and no output came", long, 4 * time.Second, 0, true},
		{"paused", long, long, long, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
			s := silence{exitedAt: ago(long), checkAt: ago(tt.check)}
			a := output.Activity{Wrote: ago(tt.wrote), Ready: ago(tt.ready)}
			if s.wasPaused(time.Now()) {
				a.Ready = time.Now()
			}
			if wait := s.remaining(time.Now(), a, 2*time.Second, 10*time.Second); (wait <= 0) != tt.ends {
				t.Errorf("it stays open for %v", wait)
			}
		})
	}
}
