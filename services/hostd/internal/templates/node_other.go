//go:build !linux

package templates

import (
	"archive/tar"
	"os"

	"github.com/millrace/millrace/events/kind"
)

const userAttribute = "user."

// attributes are none here: a snapshot of this system's is a file of its own.
func attributes(*os.File) (map[string]string, error) { return nil, nil }

func setAttribute(_ *os.File, name, _ string) error {
	return kind.New(kind.Unimplemented, "copy files", name, "this system keeps no attributes of files")
}

func makeNode(_ *os.File, name string, _ *tar.Header) error {
	return kind.New(kind.Unimplemented, "copy files", name, "this system makes no such files")
}
