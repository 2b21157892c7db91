//go:build !linux

package live

import (
	"os"
	"path/filepath"
)

// maxAddress is the capacity of a unix address, without the NUL.
const maxAddress = 103

// address returns the address of a socket in dir, through a link with a short name if dir is too long.
func address(dir, name string) (addr string, done func(), err error) {
	if addr = filepath.Join(dir, name); len(addr) <= maxAddress {
		return addr, func() {}, nil
	}
	short, err := os.MkdirTemp("/tmp", "mr") // accessible only to its owner
	if err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(short) } //nolint:errcheck // leaves at worst a link in /tmp
	if err := os.Symlink(dir, filepath.Join(short, "d")); err != nil {
		done()
		return "", nil, err
	}
	return filepath.Join(short, "d", name), done, nil
}
