package driver

import (
	"io"
	"os"
	"path/filepath"
)

// LogFile is where a shim's standard error goes, in Spec.Dir.
const LogFile = "shim.log"

// Said is the beginning of a shim's log: why it did not become one, or ended. The text
// may be the sandbox's own.
func Said(dir string) string {
	const most = 1000
	f, err := os.Open(filepath.Join(dir, LogFile))
	if err != nil {
		return ""
	}
	defer f.Close()                             //nolint:errcheck // it was only read
	b, _ := io.ReadAll(io.LimitReader(f, most)) //nolint:errcheck // what there is of it
	return string(b)
}
