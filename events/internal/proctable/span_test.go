package proctable

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, tt := range []struct {
		span  Span
		rev   uint64
		ended time.Time
		want  bool
	}{
		{Span{}, 1, time.Time{}, true},
		{Span{After: 5}, 5, at, false},
		{Span{After: 5}, 6, time.Time{}, true},
		{Span{After: 5, Since: at}, 5, at, true},
		{Span{After: 5, Since: at}, 5, at.Add(-1), false},
		{Span{After: 5, UpTo: 7}, 7, at, true},
		{Span{After: 5, UpTo: 7}, 8, at, false},
		{Span{After: 5, Since: at, UpTo: 7}, 8, at, false},
	} {
		if got := tt.span.has(tt.rev, tt.ended); got != tt.want {
			t.Errorf("%+v has %d, %v: %v, want %v", tt.span, tt.rev, tt.ended, got, tt.want)
		}
	}
}
