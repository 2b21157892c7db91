package waiting_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if !waiting.Sleep(ctx, time.Millisecond) || time.Since(began) != time.Millisecond {
			t.Errorf("slept %v of 1 ms", time.Since(began))
		}
		if waiting.Sleep(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("slept %v although the context ended after 1 s", time.Since(began))
		}
	})
}

func TestDelaysDoubleUpToTheLimit(t *testing.T) {
	tests := []struct {
		try               int
		first, most, want time.Duration
	}{
		{0, time.Millisecond, time.Second, time.Millisecond},
		{3, time.Millisecond, time.Second, 8 * time.Millisecond},
		{10, time.Millisecond, time.Second, time.Second},
		{1 << 40, time.Millisecond, time.Second, time.Second},
		{0, time.Minute, time.Second, time.Second},
	}
	for _, tt := range tests {
		if got := waiting.Delay(tt.try, tt.first, tt.most); got != tt.want {
			t.Errorf("Delay(%d, %v, %v) = %v, want %v", tt.try, tt.first, tt.most, got, tt.want)
		}
	}
}

// A receiver that is busy gets one value for all calls, and no call waits for it.
func TestNotifyNeverWaits(t *testing.T) {
	c := make(chan struct{}, 1)
	for range 3 {
		waiting.Notify(c)
	}
	<-c
	select {
	case <-c:
		t.Error("got a second value")
	default:
	}
}
