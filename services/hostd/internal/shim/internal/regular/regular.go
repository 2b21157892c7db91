package regular

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Read reads an untrusted file, up to one byte more than most, and returns its state at that
// moment. A file that is not regular, or is held by a lease, is an error; Read never blocks.
func Read(path string, most int) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, nil, errors.Join(err, fs.ErrInvalid)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	return b, fi, err
}
