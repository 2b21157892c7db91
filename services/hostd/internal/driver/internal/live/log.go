package live

import (
	"os"
	"path/filepath"

	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Streams opens the standard streams of a shim: the null device and its log.
func Streams(dir string) (null, log *os.File, err error) {
	if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	if log, err = os.OpenFile(filepath.Join(dir, driver.LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		null.Close()
		return nil, nil, err
	}
	return null, log, nil
}
