package process_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// No system allows longer ones, and the record quotes a rejected spec.
func TestLongDirectoriesAndUsersAreInvalid(t *testing.T) {
	most := strings.Repeat("x", process.MaxPath)
	tests := []struct {
		name string
		spec process.Spec
		ok   bool
	}{
		{"as long as can be", process.Spec{Cmd: "true", Cwd: most, User: most}, true},
		{"a longer directory", process.Spec{Cmd: "true", Cwd: most + "x"}, false},
		{"a longer user", process.Spec{Cmd: "true", User: most + "x"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.spec.Validate(); (err == nil) != tt.ok || err != nil && !kind.Is(err, kind.Invalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}
