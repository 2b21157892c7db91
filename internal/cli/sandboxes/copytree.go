package sandboxes

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// uploadTree copies the contents of a local directory into a directory of the sandbox,
// and creates it if needed.
func (x *copier) uploadTree(ctx context.Context, from, to string) error {
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(x.writeTree(w, from)) }()
	const script = `mkdir -p -- "$1" && exec tar -x -p -o -f - -C "$1"`
	return x.tar(ctx, script, to, r, nil)
}

// downloadTree copies the contents of a directory of the sandbox into a local directory,
// and creates it if needed.
func (x *copier) downloadTree(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := x.readTree(r, root)
		r.CloseWithError(err)
		read <- err
	}()
	const script = `cd -- "$1" && exec tar -c -f - .`
	err = x.tar(ctx, script, from, nil, w)
	w.CloseWithError(err)
	if rerr := <-read; err == nil {
		err = rerr
	}
	return err
}

// tar runs a shell script in the sandbox with p as its argument, in as its input unless
// nil, and out as its output.
func (x *copier) tar(ctx context.Context, script, p string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	id, err := x.c.Start(ctx, x.sbx, &client.Command{Cmd: "/bin/sh", Args: []string{"-c", script, "sh", p}, User: x.user, Stdin: in != nil})
	if err != nil {
		return err
	}
	feed := client.NewFeeder(x.c, id)
	if in != nil {
		go func() {
			if err := feed.Feed(ctx, in, client.EndClose); err != nil {
				cancel(err)
			}
		}()
	}
	t := tarRun{out: out, feed: feed}
	if err := x.c.Follow(ctx, id, 0, x.a.Notef, t.event); err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), command.CleanupTimeout)
		defer stop()
		x.c.Signal(ctx, id, int(unix.SIGKILL)) //nolint:errcheck // it may have ended
		return client.WithMessage(err)
	}
	return t.result()
}

// tarRun is a tar process in the sandbox.
type tarRun struct {
	out    io.Writer
	feed   *client.Feeder
	errors bytes.Buffer // standard error of tar
	end    client.Event
}

const maxTarErrors = 4 << 10 // bytes of tar's standard error in messages

// event handles one event of the process's record.
func (t *tarRun) event(e *client.Event) error {
	switch e.Type {
	case "stdout":
		if t.out != nil {
			_, err := t.out.Write(e.Bytes())
			return err
		}
	case "stderr", "error":
		text := e.Bytes()
		if e.Type == "error" {
			text = []byte(e.Message)
		}
		t.errors.Write(text[:min(len(text), maxTarErrors-min(maxTarErrors, t.errors.Len()))])
	case "stdin_ack":
		t.feed.Ack(e)
	case "gap", "truncated", "omitted":
		return errors.New("part of tar's output was not recorded")
	case "end":
		t.end = *e
	}
	return nil
}

// result returns tar's error, or nil.
func (t *tarRun) result() error {
	if t.end.ExitCode != nil && *t.end.ExitCode == 0 {
		return nil
	}
	text := strings.TrimSpace(t.errors.String())
	switch {
	case text != "":
		return fmt.Errorf("tar in the sandbox failed: %s", text)
	case t.end.ExitCode != nil:
		return fmt.Errorf("tar in the sandbox failed with exit code %d", *t.end.ExitCode)
	}
	return fmt.Errorf("tar in the sandbox was ended (%s)", t.end.Cause)
}

// writeTree writes the contents of a directory as a tar.
func (x *copier) writeTree(w io.Writer, dir string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if rel == "." && contents(dir) {
			return nil // the destination keeps its permissions
		}
		return x.writeEntry(out, name, rel, d)
	})
	return errors.Join(err, out.Close())
}

func (x *copier) writeEntry(out *tar.Writer, name, rel string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = os.Readlink(name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		x.a.Notef("%s skipped: it is neither a file, a directory nor a symbolic link", name)
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = "./" + filepath.ToSlash(rel)
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", "" // owners are not kept
	if !info.Mode().IsRegular() {
		return out.WriteHeader(h)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.Copy(out, io.LimitReader(f, h.Size)); err != nil || n < h.Size {
		return errors.Join(fmt.Errorf("copy %s: the file shrank or could not be read", name), err)
	}
	return nil
}

// readTree unpacks a tar into root. It touches nothing outside of root, because a tar from
// a sandbox is untrusted.
func (x *copier) readTree(r io.Reader, root *os.Root) error {
	in := tar.NewReader(r)
	modes := map[string]fs.FileMode{} // directories, set last: they may be read-only
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			modes[name] = h.FileInfo().Mode().Perm()
		}
		if err := x.readEntry(in, h, root, name); err != nil {
			return err
		}
	}
	for name, mode := range modes {
		if err := root.Chmod(name, mode); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, r) // padding of the tar
	return err
}

func (x *copier) readEntry(in io.Reader, h *tar.Header, root *os.Root, name string) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	default:
		x.a.Notef("%s skipped: it is neither a file, a directory nor a link", output.Printable(h.Name))
		return nil
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(filepath.FromSlash(h.Linkname)), name)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Chmod(h.FileInfo().Mode().Perm()), f.Close(), root.Chtimes(name, h.ModTime, h.ModTime))
}
