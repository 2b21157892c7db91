package output

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/vtfilter"
)

// Writer is a descriptor for recorded output. If it is a terminal, queries are removed
// from history.
type Writer struct {
	w        io.Writer
	Terminal bool
	filter   vtfilter.Filter
	buf      []byte
}

// New returns an output on w.
func New(w io.Writer) *Writer {
	f, ok := w.(*os.File)
	return &Writer{w: w, Terminal: ok && IsTerminal(f)}
}

// Show writes p, which is history or live.
func (o *Writer) Show(p []byte, history bool) error { return o.Send(o.Clean(p, history)) }

// Clean returns p without terminal queries. The result is valid until the next call.
func (o *Writer) Clean(p []byte, history bool) []byte {
	switch {
	case !o.Terminal:
		return p
	case history:
		o.buf = o.filter.Replay(o.buf[:0], p)
	default:
		o.buf = o.filter.Live(o.buf[:0], p)
	}
	return o.buf
}

// Send writes bytes unchanged.
func (o *Writer) Send(p []byte) error {
	_, err := o.w.Write(p)
	switch {
	case errors.Is(err, unix.EPIPE) || errors.Is(err, io.ErrClosedPipe):
		// The reader closed the pipe, as `head` does: end as a local command would.
		return ErrNoReader
	case o.Terminal && errors.Is(err, unix.EIO):
		return ErrDetached // the terminal closed; SIGHUP follows
	}
	return err
}

// Write writes p as history.
func (o *Writer) Write(p []byte) (int, error) {
	if err := o.Show(p, true); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ErrNoReader is the CLI's exit after the reader of its output closed the pipe.
var ErrNoReader = &ExitError{Code: ExitSignal + int(unix.SIGPIPE)}

// ErrDetached ends an attach and leaves the process running.
var ErrDetached = errors.New("detached")
