package users

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/regular"
)

// colonFile is /etc/passwd or /etc/group of the sandbox, which processes may change at any
// time to anything. It is safe for concurrent use.
type colonFile struct {
	path string

	mu   sync.Mutex
	seen fs.FileInfo // stat of text; nil: nothing is cached
	text []byte
}

const (
	maxAccounts = 1 << 20 // bytes that are read

	// A file changed less than this before it was read may change again within one tick of
	// its timestamp, and look the same.
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

// read reads the file unless it is unchanged: a stat is one system call, reading takes six,
// and every process start pays for it.
func (c *colonFile) read() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, err := os.Stat(c.path); err == nil && c.seen != nil && same(now, c.seen) {
		return c.text, nil
	}
	c.seen = nil
	b, fi, err := regular.Read(c.path, maxAccounts)
	if err == nil && time.Since(fi.ModTime()) > tickless {
		c.seen, c.text = fi, b
	}
	return b, err
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// nameOf returns the first name with that id, or the id itself.
func (c *colonFile) nameOf(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	for f := range c.lines {
		if len(f) > 2 && f[2] == number {
			return f[0]
		}
	}
	return number
}
