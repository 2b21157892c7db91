//go:build !linux || !(amd64 || arm64)

package confine

import (
	"errors"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// New returns kind.Unimplemented.
func New(*process.Confinement) (*spawn.Restrictions, error) {
	return nil, kind.Wrap(kind.Unimplemented, "confine", "", Check())
}

// RestrictThread returns kind.Unimplemented.
func RestrictThread(*process.Confinement) error {
	return kind.Wrap(kind.Unimplemented, "confine", "", Check())
}

// Check returns an error.
func Check() error { return errors.New("processes can be confined on Linux only") }
