package live

import (
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Trial gives a driver a place's directory for a trial of itself, and what removes
// it. It is made in scratch, whose owner finds there what somebody left who was
// killed in the middle, as any place in root/<id>; without scratch, in the system's
// directory for temporary files.
func Trial(scratch string) (s driver.Spec, done func(), err error) {
	s.ID = sandbox.NewID()
	if scratch != "" {
		s.Dir = filepath.Join(scratch, string(s.ID))
		err = os.MkdirAll(s.Dir, 0o700)
	} else {
		s.Dir, err = os.MkdirTemp("", "millrace-probe-")
	}
	return s, func() { os.RemoveAll(s.Dir) }, err //nolint:errcheck // a few files in the directory for such
}
