//go:build linux

package files

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// handleSet are the open files of one stream.
type handleSet struct {
	*op
	open map[uint32]*os.File
	data []byte
}

// handles serves calls until the client ends the stream. A call that fails does not end it.
func handles(o *op) error {
	h := &handleSet{op: o, open: make(map[uint32]*os.File)}
	defer func() {
		for _, f := range h.open {
			f.Close()
		}
	}()
	var raw []byte
	for {
		var err error
		raw, err = file.ReadFrame(o.in, raw)
		if isEOF(err) {
			return nil
		}
		if err != nil {
			return err
		}
		call, err := file.ParseHandleCall(raw)
		if err != nil {
			return err
		}
		if call.Op == file.HandleWrite {
			h.data = append(h.data[:0], make([]byte, call.Length)...)
			if _, err := io.ReadFull(o.in, h.data); err != nil {
				return err
			}
		}
		data, err := h.do(&call)
		result := file.HandleResult{Length: uint32(len(data))}
		if err != nil {
			err = errorOf(call.Path, err)
			result = file.HandleResult{Failed: true, Kind: kind.Of(err), Msg: kind.Message(err)}
			data = nil
		}
		o.out.Write(file.AppendFrame(nil, result.Append(nil))) //nolint:errcheck // Flush returns the error
		o.out.Write(data)                                      //nolint:errcheck // likewise
		if err := o.out.Flush(); err != nil {
			return err
		}
	}
}

// do performs a call and returns what it read, which is valid until the next call.
func (h *handleSet) do(c *file.HandleCall) ([]byte, error) {
	f := h.open[c.Handle]
	if c.Op == file.HandleOpen {
		if f != nil {
			return nil, kind.Newf(kind.Conflict, "open", "", "handle %d is open", c.Handle)
		}
		return nil, h.openFile(c)
	}
	if c.Op == file.HandleClose {
		delete(h.open, c.Handle)
		if f == nil {
			return nil, nil
		}
		return nil, f.Close()
	}
	if f == nil {
		return nil, kind.Newf(kind.NotFound, "file", "", "handle %d is not open", c.Handle)
	}
	if c.Op == file.HandleWrite {
		if err := h.diskFree(); err != nil {
			return nil, err
		}
		_, err := f.WriteAt(h.data, c.Offset)
		return nil, err
	}
	h.data = append(h.data[:0], make([]byte, c.Length)...)
	n, err := f.ReadAt(h.data, c.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return h.data[:n], err
}

// openFile opens a regular file. One that is opened for writing keeps its inode.
func (h *handleSet) openFile(c *file.HandleCall) error {
	if len(h.open) == file.MaxHandles {
		return kind.Newf(kind.Exhausted, "open", "", "more than %d open handles", file.MaxHandles)
	}
	p, err := Resolve(h.who.Home, c.Path)
	if err != nil {
		return err
	}
	return h.confined(c.Confine, func() error {
		var f *os.File
		var err error
		if c.Replace {
			f, err = h.create(p)
		} else {
			f, err = h.openSource(p)
		}
		if err == nil {
			h.open[c.Handle] = f
		}
		return err
	})
}

// create opens a file for writing and truncates it. A missing one is created.
func (h *handleSet) create(p string) (*os.File, error) {
	if err := h.diskFree(); err != nil {
		return nil, err
	}
	at, err := h.target(p)
	if err != nil {
		return nil, err
	}
	defer closeFd(at.dir)
	flags := unix.O_WRONLY | unix.O_TRUNC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	if !at.old {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	fd, err := unix.Openat(at.dir, at.name, flags, fileMode)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), p)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = regular(p, &st)
	}
	if err == nil && !at.old {
		err = h.finish(fd, at)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
