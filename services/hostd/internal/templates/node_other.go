//go:build !linux

package templates

import (
	"archive/tar"
	"os"

	"github.com/millrace/millrace/events/kind"
)

const userAttribute = "user."

// attributes returns nil: on this system a snapshot is a single file.
func attributes(*os.File) (map[string]string, error) { return nil, nil }

func setAttribute(_ *os.File, name, _ string) error {
	return kind.New(kind.Unimplemented, "copy files", name, "file attributes are not supported on this system")
}

func makeNode(_ *os.File, name string, _ *tar.Header) error {
	return kind.New(kind.Unimplemented, "copy files", name, "such files are not supported on this system")
}
