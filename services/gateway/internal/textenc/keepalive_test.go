package textenc

import (
	"testing"
	"time"
)

func TestKeepaliveTimerCountsFromTheLastBytesSent(t *testing.T) {
	p, now := NewKeepaliveTimer(10*time.Second), time.Unix(1000, 0)
	steps := []struct {
		after time.Duration
		sent  bool
		due   bool
		wait  time.Duration
	}{
		{0, false, false, 10 * time.Second},
		{4 * time.Second, false, false, 6 * time.Second},
		{4 * time.Second, true, false, 10 * time.Second},
		{9 * time.Second, false, false, time.Second},
		{time.Second, false, true, 10 * time.Second},
		{25 * time.Second, false, true, 10 * time.Second},
	}
	for i, s := range steps {
		if s.sent {
			p.Sent()
		}
		now = now.Add(s.after)
		if due, wait := p.Due(now); due != s.due || wait != s.wait {
			t.Errorf("step %d: got %v, %v; want %v, %v", i, due, wait, s.due, s.wait)
		}
	}
	never := NewKeepaliveTimer(0)
	if due, wait := never.Due(now); due || wait != 0 {
		t.Errorf("never: got %v, %v", due, wait)
	}
}
