//go:build linux

package files

import (
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
)

// compose concatenates files into one, and removes them. Readers see the previous content
// or all of the new one; an interruption leaves the sources.
func (o *op) compose() error {
	sources, err := o.sources()
	if err != nil {
		return err
	}
	if _, err := o.ensure(path.Dir(o.path)); err != nil {
		return err
	}
	at, err := o.target(o.path)
	if err != nil {
		return err
	}
	defer closeFd(at.dir)
	if err := o.put(at, func(f *os.File) error { return o.copySources(f, sources) }); err != nil {
		return err
	}
	for _, p := range sources {
		if dir, base, err := o.openParent(p); err == nil {
			unix.Unlinkat(dir, base, 0) //nolint:errcheck // all of its content is in the new file
			closeFd(dir)
		}
	}
	e, err := o.statAt(at.dir, at.name, o.path)
	if err != nil {
		return err
	}
	return o.send(&e)
}

// sources returns the paths of the sources, all of which can be used.
func (o *op) sources() ([]string, error) {
	if len(o.req.Sources) == 0 {
		return nil, kind.New(kind.Invalid, "compose", "", "source_paths must not be empty")
	}
	var there unix.Stat_t
	if f, err := o.openSource(o.path); err == nil {
		err = unix.Fstat(int(f.Fd()), &there)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	out := make([]string, 0, len(o.req.Sources))
	for _, given := range o.req.Sources {
		p, err := Resolve(o.who.Home, given)
		if err != nil {
			return nil, err
		}
		f, err := o.openSource(p)
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		err = unix.Fstat(int(f.Fd()), &st)
		f.Close()
		switch {
		case err != nil:
			return nil, err
		case st.Ino == there.Ino && st.Dev == there.Dev: // also by another name: it would be removed at the end
			return nil, kind.Newf(kind.Invalid, "compose", "", "source path %q cannot be the same as destination", given)
		}
		out = append(out, p)
	}
	return out, nil
}

func (o *op) openSource(p string) (*os.File, error) {
	fd, err := o.open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, errorOf(p, err)
	}
	f := os.NewFile(uintptr(fd), p)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = regular(p, &st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// copySources copies the sources.
func (o *op) copySources(to *os.File, sources []string) error {
	for _, p := range sources {
		f, err := o.openSource(p)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, f)
		f.Close()
		if err != nil {
			return errorOf(o.path, err)
		}
	}
	return nil
}
