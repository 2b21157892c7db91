package backend_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/codex/backend"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
)

// gateway is a gateway in memory whose sandbox has the files of a directory.
type gateway struct {
	*recordtest.Gateway
	root     string
	appeared chan struct{} // ends a wait for a missing file
	streams  chan int      // receives the number of open handles at the end of a stream
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{Gateway: recordtest.New("i1"), root: t.TempDir(), appeared: make(chan struct{}), streams: make(chan int, 8)}
	g.OnStart = func(id process.ID, spec process.Spec) {
		switch {
		case spec.Cmd == "/bin/sh" && spec.Helper && spec.Tag == nil:
			g.Append(id, process.Started{PID: 1}, process.Wrote{Stream: process.Stdout, Data: []byte("/home/user\x00/bin/bash\x00HOME=/home/user\x00PATH=/bin\x00PWD=/x\x00A=b=c\nd\x00")})
			g.finish(id, 0)
		case spec.Cmd == "missing":
			g.Append(id, process.Failed{Message: "no such file"}, process.Finished{Exit: process.Exit{Cause: process.CauseNotStarted}})
		default:
			g.Append(id, process.Started{PID: 2})
		}
	}
	return g
}

func (g *gateway) finish(id process.ID, code int32) {
	x := process.Exit{Code: &code, Cause: process.CauseExited}
	g.Append(id, process.Exited{Exit: x}, process.Finished{Exit: x})
}

type attached struct{ resumed bool }

func (attached) Session() string           { return "s1" }
func (a attached) Resumed() bool           { return a.resumed }
func (attached) OnLost(func()) func() bool { return func() bool { return true } }
func (attached) Detach()                   {}

func (g *gateway) services(b *backend.Backend, resumed bool) *session.Services {
	return b.Services(core.Principal{Tenant: recordtest.Tenant}, "i1", attached{resumed})
}

// halves are the two directions of a stream.
type halves struct {
	io.Reader
	w     *io.PipeWriter
	abort func(error)
}

func (h *halves) Write(p []byte) (int, error) { return h.w.Write(p) }
func (h *halves) CloseWrite() error           { return h.w.Close() }
func (h *halves) Abort(err error)             { h.abort(err) }

// OpenFiles serves a request about the files below the root.
func (g *gateway) OpenFiles(ctx context.Context, _ core.Principal, _ sandbox.ID, req *file.Request) (*core.Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	upR, upW := io.Pipe()
	downR, downW := io.Pipe()
	go func() {
		err := g.serve(upR, downW)
		if err == nil {
			downW.Close()
		}
		downW.CloseWithError(err)
		io.Copy(io.Discard, upR)
	}()
	return core.OpenFilesOver(ctx, &halves{downR, upW, func(error) {
		upW.Close()
		downR.Close()
	}}, req)
}

func (g *gateway) serve(r io.Reader, w io.Writer) error {
	raw, err := file.ReadFrame(r, nil)
	if err != nil {
		return err
	}
	req, err := file.Parse(raw)
	if err != nil {
		return err
	}
	at := filepath.Join(g.root, req.Path)
	if req.Confine != nil {
		return kind.New(kind.Unimplemented, "", "", "cannot be confined")
	}
	switch req.Op {
	case file.OpResolve:
		found, err := filepath.EvalSymlinks(at)
		if err != nil {
			return toKind(err)
		}
		_, err = os.Readlink(at)
		return g.sendAs(w, "/"+strings.TrimPrefix(strings.TrimPrefix(found, g.root), "/"), err == nil)
	case file.OpCopy:
		data, err := os.ReadFile(at)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.root, req.To), data, 0o644)
		}
		if err != nil {
			return toKind(err)
		}
		return g.send(w, req.To)
	case file.OpWalk:
		for _, f := range []file.Found{{Path: req.Path + "/a", Dir: true}, {Path: req.Path + "/b"}, {Truncated: true}} {
			if _, err := w.Write(file.AppendFrame(nil, f.Append(nil))); err != nil {
				return err
			}
		}
		return nil
	case file.OpHandles:
		return g.serveHandles(r, w)
	case file.OpAwait:
		if _, err := os.Stat(filepath.Join(g.root, req.Sources[0])); err == nil {
			return nil
		}
		if _, err := w.Write(file.AppendFrame(nil, nil)); err != nil {
			return err
		}
		<-g.appeared
		return nil
	case file.OpList:
		all, err := os.ReadDir(at)
		for _, e := range all {
			if err := g.send(w, filepath.Join(req.Path, e.Name())); err != nil {
				return err
			}
		}
		return toKind(err)
	case file.OpMakeDir:
		if _, err := os.Stat(at); err == nil && !req.Force {
			return kind.New(kind.Conflict, "", "", "directory already exists")
		}
		mkdir := os.MkdirAll
		if req.Single {
			mkdir = os.Mkdir
		}
		if err := mkdir(at, 0o755); err != nil {
			return toKind(err)
		}
		return g.send(w, req.Path)
	case file.OpRemove:
		if _, err := os.Lstat(at); err != nil && req.Exists {
			return toKind(err)
		}
		if req.Single {
			return toKind(os.Remove(at))
		}
		return toKind(os.RemoveAll(at))
	case file.OpRead:
		if err := g.send(w, req.Path); err != nil {
			return err
		}
		raw, err := file.ReadFrame(r, nil)
		if err != nil {
			return err
		}
		part, err := file.ParseRange(raw)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return toKind(err)
		}
		data = data[part.Offset:]
		if part.Length >= 0 {
			data = data[:part.Length]
		}
		_, err = w.Write(data)
		return err
	case file.OpWrite:
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(at, data, 0o644)
		}
		if err != nil {
			return toKind(err)
		}
		return g.send(w, req.Path)
	}
	return kind.New(kind.Unimplemented, "", "", "")
}

// serveHandles serves calls until the client leaves. The file "break" breaks the stream.
func (g *gateway) serveHandles(r io.Reader, w io.Writer) error {
	open := make(map[uint32]*os.File)
	for {
		raw, err := file.ReadFrame(r, nil)
		if err != nil {
			g.streams <- len(open)
			return nil //nolint:nilerr // the client left
		}
		c, err := file.ParseHandleCall(raw)
		if err != nil {
			return err
		}
		data := make([]byte, c.Length)
		switch c.Op {
		case file.HandleOpen:
			if c.Path == "/break" {
				return kind.New(kind.Unavailable, "", "", "")
			}
			flags := os.O_RDONLY
			if c.Replace {
				flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
			}
			var f *os.File
			if f, err = os.OpenFile(filepath.Join(g.root, c.Path), flags, 0o644); err == nil {
				open[c.Handle] = f
			}
			data = nil
		case file.HandleRead:
			var n int
			n, err = open[c.Handle].ReadAt(data, c.Offset)
			if data = data[:n]; errors.Is(err, io.EOF) {
				err = nil
			}
		case file.HandleWrite:
			io.ReadFull(r, data)
			_, err = open[c.Handle].WriteAt(data, c.Offset)
			data = nil
		case file.HandleClose:
			err = open[c.Handle].Close()
			delete(open, c.Handle)
		}
		result := file.HandleResult{Length: uint32(len(data))}
		if err = toKind(err); err != nil {
			result = file.HandleResult{Failed: true, Kind: kind.Of(err), Msg: kind.Message(err)}
		}
		if _, err := w.Write(append(file.AppendFrame(nil, result.Append(nil)), data...)); err != nil {
			return err
		}
	}
}

// sendAs sends the entry of a path that was resolved.
func (g *gateway) sendAs(w io.Writer, p string, link bool) error {
	st, err := os.Stat(filepath.Join(g.root, p))
	if err != nil {
		return toKind(err)
	}
	e := &pb.EntryInfo{Name: filepath.Base(p), Path: p, Size: st.Size(), ModifiedTime: timestamppb.New(st.ModTime()), Type: pb.FileType_FILE_TYPE_FILE}
	if st.IsDir() {
		e.Type = pb.FileType_FILE_TYPE_DIRECTORY
	}
	if link {
		e.SymlinkTarget = &p
	}
	raw, err := proto.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(file.AppendFrame(nil, raw))
	return err
}

// send sends the entry of a path, as the sandbox does.
func (g *gateway) send(w io.Writer, p string) error {
	at := filepath.Join(g.root, p)
	st, err := os.Lstat(at)
	if err != nil {
		return toKind(err)
	}
	e := &pb.EntryInfo{Name: filepath.Base(p), Path: p, Size: st.Size(), ModifiedTime: timestamppb.New(st.ModTime())}
	shown := st
	if st.Mode()&fs.ModeSymlink != 0 {
		target := p
		if to, err := os.Readlink(at); err == nil {
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(p), to)
			}
			if path, err := filepath.EvalSymlinks(filepath.Join(g.root, to)); err == nil {
				target = strings.TrimPrefix(path, g.root)
				shown, _ = os.Stat(path)
			} else {
				shown = nil
			}
		}
		e.SymlinkTarget = &target
	}
	switch {
	case shown == nil:
	case shown.IsDir():
		e.Type = pb.FileType_FILE_TYPE_DIRECTORY
	case shown.Mode().IsRegular():
		e.Type = pb.FileType_FILE_TYPE_FILE
	}
	raw, err := proto.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(file.AppendFrame(nil, raw))
	return err
}

func toKind(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return kind.Wrap(kind.NotFound, "", "", err)
	case errors.Is(err, fs.ErrExist):
		return kind.Wrap(kind.Conflict, "", "", err)
	}
	return kind.Wrap(kind.Invalid, "", "", err)
}

// OpenEgress implements [backend.EgressOpener].
func (g *gateway) OpenEgress(context.Context, core.Principal, sandbox.ID) (*mux.Stream, error) {
	return nil, kind.New(kind.Unavailable, "", "", "the sandbox has no network")
}
