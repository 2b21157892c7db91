package driver

import (
	"io"
	"os"
	"path/filepath"
)

// LogFile is the name of the log of a shim's standard error, in Spec.Dir.
const LogFile = "shim.log"

// ShimLog returns the beginning of a shim's log, which shows why it did not start or why
// it ended. The sandbox may have written the text itself.
func ShimLog(dir string) string {
	const most = 1000
	f, err := os.Open(filepath.Join(dir, LogFile))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, most))
	return string(b)
}
