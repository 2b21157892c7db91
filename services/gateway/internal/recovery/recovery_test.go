package recovery_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

func TestPanicIsLoggedAndReturned(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, nil))
	if err := recovery.Do(log, "work", func() error { return io.EOF }); !errors.Is(err, io.EOF) || buf.Len() > 0 {
		t.Errorf("no panic: %v, %q", err, &buf)
	}
	err := recovery.Do(log, "work", func() error { panic("no word") })
	if !kind.Is(err, kind.Internal) || strings.Contains(kind.Message(err), "word") {
		t.Errorf("got %v, for clients %q", err, kind.Message(err))
	}
	if got := buf.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no word") || !strings.Contains(got, "recovery_test.go") {
		t.Errorf("logged %q", got)
	}
}
