package agentexec

import (
	"compress/gzip"
	_ "embed" // the agent
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// packed is the agent's program, compressed. In the source it is empty: a build replaces the file.
//
//go:embed agent.gz
var packed string

var errNone = errors.New("this program was built without the agent: docs/e2a-agent.md says how to build it")

// Exec replaces this process by the agent. It returns only after an error.
func Exec(args []string) error {
	f, err := unpack(packed)
	if err != nil {
		return err
	}
	defer f.Close() // it is open until the new program replaces this one
	return unix.Exec("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), args, os.Environ())
}

// unpack returns a file in memory with the program.
func unpack(packed string) (*os.File, error) {
	if packed == "" {
		return nil, errNone
	}
	z, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack the agent: %w", err)
	}
	fd, err := unix.MemfdCreate("millrace-agent", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // older than Linux 6.3
		fd, err = unix.MemfdCreate("millrace-agent", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack the agent: %w", err)
	}
	f := os.NewFile(uintptr(fd), "millrace-agent")
	if _, err := io.Copy(f, z); err != nil { //nolint:gosec // it is our own program, not a client's data
		f.Close()
		return nil, fmt.Errorf("unpack the agent: %w", err)
	}
	return f, nil
}
