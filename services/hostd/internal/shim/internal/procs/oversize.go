package procs

import (
	"errors"
	"strings"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

// oversize returns why a program could not be executed if its arguments or environment are
// too large, else nil. Linux returns E2BIG; a kernel that copies one string at a time, such
// as gVisor's, ENAMETOOLONG. Values are not quoted: they may be secret.
func oversize(err error, argv, env []string) error {
	if !errors.Is(err, syscall.E2BIG) && !errors.Is(err, syscall.ENAMETOOLONG) {
		return nil
	}
	total, most := 0, maxString()
	for i, arg := range argv {
		total += len(arg) + 1
		switch {
		case most == 0 || len(arg) <= most:
		case i == 0:
			return kind.Newf(kind.Invalid, "start", "", "the command is %d bytes long, the limit is %d", len(arg), most)
		default:
			return kind.Newf(kind.Invalid, "start", "", "argument %d of %.64q is %d bytes long, the limit is %d", i, argv[0], len(arg), most)
		}
	}
	for _, v := range env {
		total += len(v) + 1
		if most > 0 && len(v) > most {
			name, _, _ := strings.Cut(v, "=")
			return kind.Newf(kind.Invalid, "start", "", "environment variable %.64q is %d bytes long with its name, the limit is %d", name, len(v), most)
		}
	}
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return nil // the program's path
	}
	return kind.Newf(kind.Invalid, "start", "", "the arguments and the environment are %d bytes long together, which is more than the system accepts", total)
}
