package live

import (
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// ProbeSpec returns a spec with a directory in which a driver can test itself, and a function
// that removes it. The directory is in scratch, so that scratch's owner finds what a killed
// trial left, like any instance in root/<id>; if scratch is empty, it is in the system's
// directory for temporary files.
func ProbeSpec(scratch string) (s driver.Spec, done func(), err error) {
	s.ID = sandbox.NewID()
	if scratch != "" {
		s.Dir = filepath.Join(scratch, string(s.ID))
		err = os.MkdirAll(s.Dir, 0o700)
	} else {
		s.Dir, err = os.MkdirTemp("", "millrace-probe-")
	}
	return s, func() { os.RemoveAll(s.Dir) }, err
}
