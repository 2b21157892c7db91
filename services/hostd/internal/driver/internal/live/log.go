package live

import (
	"io"
	"os"
	"path/filepath"
)

// LogFile is where a shim's standard error goes, in Spec.Dir.
const LogFile = "shim.log"

// Streams opens the standard streams of a shim: nothing, and its log.
func Streams(dir string) (null, log *os.File, err error) {
	if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if log, err = os.OpenFile(filepath.Join(dir, LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		null.Close() //nolint:errcheck // nothing was written
		return nil, nil, err
	}
	return null, log, nil
}

// Said is the beginning of a shim's log: why it did not become one.
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
