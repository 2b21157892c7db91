package spool

import (
	"errors"
	"os"
)

// Open opens a file without a name on the file system of dir: the file is gone with the last holder
// of its descriptor, and only those can reach it.
func Open(dir string) (*os.File, error) {
	if f, err := openUnnamed(dir); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, "spool-") // not every file system has files without names
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
