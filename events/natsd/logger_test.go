package natsd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
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
