package procs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// TestOversize: gVisor returns for a long argument what Linux returns for a long path, and
// with many small arguments the error names none of them.
func TestOversize(t *testing.T) {
	large := strings.Repeat("x", maxString()+1)
	for _, tt := range []struct {
		name string
		err  error
		argv []string
		want string
	}{
		{"gVisor's error", syscall.ENAMETOOLONG, []string{"echo", large}, `argument 1 of "echo" is 131072 bytes long, the limit is 131071`},
		{"a long path", syscall.ENAMETOOLONG, []string{strings.Repeat("x", 5000)}, ""},
		{"the longest argument", syscall.E2BIG, []string{"echo", large[1:]}, "the arguments and the environment are 131081 bytes long together, which is more than the system accepts"},
		{"another error", syscall.ENOENT, []string{"echo", large}, ""},
		{"none", nil, []string{"echo", large}, ""},
	} {
		err := oversize(tt.err, tt.argv, []string{"A=b"})
		if got := kind.Message(err); (err != nil || tt.want != "") && (got != tt.want || !kind.Is(err, kind.Invalid)) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}
