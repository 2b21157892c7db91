package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
)

// Users see sentences, not the standard library's errors for broken connections.
func TestErrorsAreSentences(t *testing.T) {
	var v struct{ N int }
	for want, err := range map[string]error{
		"the gateway closed the connection":  fmt.Errorf("read: %w", io.ErrUnexpectedEOF),
		"the gateway did not answer in time": context.DeadlineExceeded,
		"interrupted":                        context.Canceled,
		"the gateway sent invalid JSON":      json.Unmarshal([]byte(`{"n":"x"}`), &v),
		errSilent.Error():                    errSilent,
	} {
		if got := WithMessage(err).Error(); got != want {
			t.Errorf("withMessage(%v) = %q; want %q", err, got, want)
		}
	}
}
