package shim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// colonFile is a file of accounts of the sandbox's making, which may be anything and
// may change. It may be used by many at a time.
type colonFile struct {
	path string

	mu   sync.Mutex
	seen fs.FileInfo // when text was read; nil: nothing is kept
	text []byte
}

const (
	maxAccounts = 1 << 20 // bytes that are looked at

	// What was changed a shorter time ago may be changed again within one tick of
	// its clock, and look the same.
	tickless = 2 * time.Second
)

// lines yields the fields of each line.
func (c *colonFile) lines(yield func([]string) bool) {
	b, err := c.read()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		if !yield(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
			return
		}
	}
}

// read reads the file unless it is as it was: a look is one system call, and to read
// it six, which every process pays for that is started.
func (c *colonFile) read() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, err := os.Stat(c.path); err == nil && c.seen != nil && same(now, c.seen) {
		return c.text, nil
	}
	c.seen = nil
	b, fi, err := readRegular(c.path, maxAccounts)
	if err == nil && time.Since(fi.ModTime()) > tickless {
		c.seen, c.text = fi, b
	}
	return b, err
}

// readRegular reads a file that may be anybody's, and up to a byte more than most: what is
// none, or is held by a lease, is an error, and not waited for.
func readRegular(path string, most int) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, nil, errors.Join(err, fs.ErrInvalid)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	return b, fi, err
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// nameOf is the first name with that number.
func (c *colonFile) nameOf(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	for f := range c.lines {
		if len(f) > 2 && f[2] == number {
			return f[0]
		}
	}
	return number
}
