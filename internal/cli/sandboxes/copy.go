package sandboxes

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
)

func (a *app) copyCommand() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files or directories to or from a sandbox",
		Long: `Copy a file or a directory to or from a sandbox. One side is SANDBOX:PATH, the other
is a local path; a local path with a colon must start with "/" or "./". Relative
paths in the sandbox start at the user's home.

If DESTINATION is a directory, the copy is created in it. "SOURCE/." copies the
contents of a directory. Permissions are kept, owners are not. Directories are
copied by tar in the sandbox.`,
		Example: `  millrace cp main.py i0abc:/work/
  millrace cp i0abc:/work/out ./out`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.copy(cmd.Context(), args[0], args[1], user)
		},
	}
	c.Flags().StringVarP(&user, "user", "u", "", "user in the sandbox (default the sandbox's user)")
	return c
}

// location is a local path (without sandbox) or a path in a sandbox.
type location struct{ sandbox, path string }

func parseLocation(s string) location {
	sbx, p, ok := strings.Cut(s, ":")
	if !ok || sbx == "" || strings.ContainsAny(sbx, "/.") {
		return location{path: s}
	}
	return location{sbx, p}
}

// copier copies between the local machine and one sandbox.
type copier struct {
	a         *app
	c         *client.Client
	sbx, user string
}

func (a *app) copy(ctx context.Context, source, destination, user string) error {
	from, to := parseLocation(source), parseLocation(destination)
	sbx := from.sandbox + to.sandbox
	switch {
	case from.sandbox != "" && to.sandbox != "":
		return errors.New("cp cannot copy between sandboxes: copy to a local path first")
	case sbx == "":
		return errors.New("one of SOURCE and DESTINATION must be SANDBOX:PATH")
	case from.path == "" || to.path == "":
		return errors.New("SANDBOX: must be followed by a path, such as SANDBOX:/tmp/file")
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	return command.ByID(ctx, c, command.SandboxIDs(), sbx, func(id string) error {
		s, err := c.Sandbox(ctx, id)
		switch {
		case err != nil:
			return err
		case s.State == client.StateEnded:
			return fmt.Errorf("sandbox %s ended", id)
		}
		x := &copier{a, c, id, user}
		if from.sandbox == "" {
			return x.upload(ctx, from.path, to.path)
		}
		return x.download(ctx, from.path, to.path)
	})
}

// entry describes a file in the sandbox.
type entry struct {
	Type string `json:"type"`
	Mode uint32 `json:"mode"`
}

const (
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
	typeSymlink   = "FILE_TYPE_SYMLINK"
)

func (x *copier) header() map[string]string {
	h := map[string]string{"E2b-Sandbox-Id": x.sbx}
	if x.user != "" {
		h["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(x.user+":"))
	}
	return h
}

// stat returns the entry at p and follows symbolic links; nil if it does not exist.
func (x *copier) stat(ctx context.Context, p string) (*entry, error) {
	e, err := x.lstat(ctx, p)
	if err != nil || e == nil || e.Type != typeSymlink {
		return e, err
	}
	dir, err := x.lstat(ctx, p+"/.")
	if err == nil && dir != nil {
		return dir, nil
	}
	return &entry{Type: typeFile}, nil // a dangling link fails in the download
}

func (x *copier) lstat(ctx context.Context, p string) (*entry, error) {
	var out struct {
		Entry entry `json:"entry"`
	}
	body := map[string]string{"path": p}
	_, err := x.c.Call(ctx, &client.Request{Method: http.MethodPost, Path: "/filesystem.Filesystem/Stat", JSON: body, Header: x.header()}, &out)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &out.Entry, nil
}

// contents reports whether p names the contents of a directory and not the directory.
func contents(p string) bool { return p == "." || strings.HasSuffix(p, "/.") }

func (x *copier) upload(ctx context.Context, from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	there, err := x.stat(ctx, to)
	if err != nil {
		return err
	}
	isDir := there != nil && there.Type == typeDirectory
	if isDir && !contents(from) || !info.IsDir() && strings.HasSuffix(to, "/") {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to = path.Join(to, filepath.Base(abs))
	}
	switch {
	case info.IsDir() && there != nil && !isDir:
		return fmt.Errorf("%s is a directory, but %s:%s is a file", from, x.sbx, to)
	case info.IsDir():
		return x.uploadTree(ctx, from, to)
	case info.Mode().IsRegular():
		return x.uploadFile(ctx, from, to)
	}
	return fmt.Errorf("%s is neither a file nor a directory", from)
}

func (x *copier) filesQuery(p string) url.Values {
	q := url.Values{"path": {p}}
	if x.user != "" {
		q.Set("username", x.user)
	}
	return q
}

func (x *copier) uploadFile(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	q := x.filesQuery(to)
	if mode := info.Mode().Perm(); mode != 0 {
		q.Set("mode", strconv.FormatUint(uint64(mode), 8))
	}
	resp, err := x.c.Open(ctx, &client.Request{Method: http.MethodPost, Path: "/files", Query: q, Header: x.header(), Stream: f, Size: info.Size()})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (x *copier) download(ctx context.Context, from, to string) error {
	there, err := x.stat(ctx, from)
	switch {
	case err != nil:
		return err
	case there == nil:
		return fmt.Errorf("%s:%s does not exist", x.sbx, from)
	}
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir() && !contents(from):
		to = filepath.Join(to, path.Base(from))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	switch {
	case there.Type != typeDirectory:
		return x.downloadFile(ctx, from, to, fs.FileMode(there.Mode).Perm())
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s:%s is a directory, but %s is a file", x.sbx, from, to)
	}
	return x.downloadTree(ctx, from, to)
}

func (x *copier) downloadFile(ctx context.Context, from, to string, mode fs.FileMode) error {
	resp, err := x.c.Open(ctx, &client.Request{Method: http.MethodGet, Path: "/files", Query: x.filesQuery(from), Header: x.header()})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return writeFile(to, mode, resp.Body)
}

// writeFile writes a file and renames it into place when it is complete. Pipes, devices
// such as /dev/stdout and targets of symbolic links are written directly: a rename would
// replace them.
func writeFile(name string, mode fs.FileMode, content io.Reader) error {
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(client.WithMessage(err), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".millrace-cp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if mode == 0 {
		mode = 0o644
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(client.WithMessage(err), f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
