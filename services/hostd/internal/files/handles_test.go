//go:build linux

package files

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

type streamConn = *net.UnixConn

// call sends a call and returns what was read.
func call(t testing.TB, c io.ReadWriter, hc file.HandleCall, data string) (string, error) {
	t.Helper()
	if _, err := c.Write(append(file.AppendFrame(nil, hc.Append(nil)), data...)); err != nil {
		return "", err
	}
	raw, err := file.ReadFrame(c, nil)
	if err != nil {
		return "", err
	}
	res, err := file.ParseHandleResult(raw)
	if err != nil {
		return "", err
	}
	b := make([]byte, res.Length)
	if _, err := io.ReadFull(c, b); err != nil {
		return "", err
	}
	return string(b), res.Err()
}

// block writes content through a handle, or reads it if content is empty.
func (r *rig) block(t testing.TB, p, content string) (got string, failed error) {
	t.Helper()
	err := r.exchange(t, file.Request{Op: file.OpHandles}, func(c streamConn) {
		if _, failed = call(t, c, file.HandleCall{Op: file.HandleOpen, Path: p, Replace: content != ""}, ""); failed != nil {
			return
		}
		if content == "" {
			got, failed = call(t, c, file.HandleCall{Op: file.HandleRead, Length: 100}, "")
		} else {
			_, failed = call(t, c, file.HandleCall{Op: file.HandleWrite, Length: uint32(len(content))}, content)
		}
		c.CloseWrite()
	})
	return got, errors.Join(failed, err)
}

func TestHandles(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "hello")
	r.put(t, "home/u/old", "older content")
	if err := os.Mkdir(r.at("home/u/d"), 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(handle uint32, path string, replace bool) file.HandleCall {
		return file.HandleCall{Op: file.HandleOpen, Handle: handle, Path: path, Replace: replace}
	}
	at := func(op file.HandleOp, handle uint32, offset int64, n uint32) file.HandleCall {
		return file.HandleCall{Op: op, Handle: handle, Offset: offset, Length: n}
	}
	steps := []struct {
		name string
		call file.HandleCall
		data string
		want string
		fail kind.Kind
	}{
		{"open", open(1, "f", false), "", "", 0},
		{"again", open(1, "f", false), "", "", kind.Conflict},
		{"a directory", open(2, "d", false), "", "", kind.Invalid},
		{"a missing file", open(2, "missing", false), "", "", kind.NotFound},
		{"a directory for writing", open(2, "d", true), "", "", kind.Invalid},
		{"below a missing directory", open(2, "missing/f", true), "", "", kind.NotFound},
		{"read", at(file.HandleRead, 1, 1, 2), "", "el", 0},
		{"read the end", at(file.HandleRead, 1, 3, 9), "", "lo", 0},
		{"read behind the end", at(file.HandleRead, 1, 9, 9), "", "", 0},
		{"an unknown handle", at(file.HandleRead, 9, 0, 1), "", "", kind.NotFound},
		{"replace", open(3, "old", true), "", "", 0},
		{"write", at(file.HandleWrite, 3, 2, 2), "ab", "", 0},
		{"write to an unknown handle", at(file.HandleWrite, 9, 0, 3), "abc", "", kind.NotFound},
		{"create", open(4, "new", true), "", "", 0},
		{"close", at(file.HandleClose, 1, 0, 0), "", "", 0},
		{"close again", at(file.HandleClose, 1, 0, 0), "", "", 0},
		{"read a closed one", at(file.HandleRead, 1, 0, 1), "", "", kind.NotFound},
	}
	err := r.exchange(t, file.Request{Op: file.OpHandles}, func(c streamConn) {
		for _, s := range steps {
			got, err := call(t, c, s.call, s.data)
			if got != s.want || (err != nil) != (s.fail != 0) || err != nil && !kind.Is(err, s.fail) {
				t.Errorf("%s: got %q, %v; want %q, kind %v", s.name, got, err, s.want, s.fail)
			}
		}
		for i := range uint32(file.MaxHandles - 2) {
			if _, err := call(t, c, open(100+i, "f", false), ""); err != nil {
				t.Errorf("handle %d: %v", i+3, err)
			}
		}
		if _, err := call(t, c, open(99, "f", false), ""); !kind.Is(err, kind.Exhausted) {
			t.Errorf("the 129th: %v", err)
		}
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
	if err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(r.at("home/u/old")); string(got) != "\x00\x00ab" || err != nil {
		t.Errorf("wrote %q, %v", got, err)
	}
}

// A confinement that cannot be enforced is an error, and never ignored.
func TestConfinementIsNotIgnored(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "f")
	c := &process.Confinement{Read: []string{"/"}}
	for op := file.OpStat; op <= file.OpAwait; op++ {
		if _, err := r.ask(t, file.Request{Op: op, Path: "f", To: "g", Sources: []string{"missing"}, Confine: c}); op != file.OpHandles && !kind.Is(err, kind.Unimplemented) {
			t.Errorf("operation %d: %v", op, err)
		}
	}
	r.exchange(t, file.Request{Op: file.OpHandles}, func(conn streamConn) {
		if _, err := call(t, conn, file.HandleCall{Op: file.HandleOpen, Path: "f", Confine: c}, ""); !kind.Is(err, kind.Unimplemented) {
			t.Errorf("open: %v", err)
		}
	})
}

// waiting starts an await. begun reports whether it waits, after which over returns its end.
func (r *rig) waiting(t testing.TB, req file.Request) (begun bool, cut func(), over func() error) {
	t.Helper()
	req.Op = file.OpAwait
	ours, theirs := pipe(t)
	e := &end{UnixConn: theirs, broken: make(chan func(), 1)}
	var wg sync.WaitGroup
	wg.Go(func() { r.Serve(e) })
	if _, err := ours.Write(file.AppendFrame(nil, req.Append(nil))); err != nil {
		t.Fatal(err)
	}
	_, err := file.ReadFrame(ours, nil)
	return err == nil, <-e.broken, func() error {
		io.Copy(io.Discard, ours)
		wg.Wait()
		ours.Close()
		return e.err
	}
}

func TestAwait(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "f")
	r.link(t, "later/x", "home/u/l")
	tests := []struct {
		name             string
		missing, present string
		do               func() error
	}{
		{"a file", "w1", "", func() error { return os.WriteFile(r.at("home/u/w1"), nil, 0o600) }},
		{"a directory", "w2", "", func() error { return os.Mkdir(r.at("home/u/w2"), 0o700) }},
		{"below missing directories", "w3/a/b", "", func() error { return os.MkdirAll(r.at("home/u/w3/a/b"), 0o700) }},
		{"moved with its directory", "w4/b", "", func() error {
			if err := os.MkdirAll(r.at("tmp/other/b"), 0o700); err != nil {
				return err
			}
			return os.Rename(r.at("tmp/other"), r.at("home/u/w4"))
		}},
		{"the target of a link", "l", "", func() error { return os.MkdirAll(r.at("home/u/later/x"), 0o700) }},
		{"a present file", "never", "f", func() error { return os.Remove(r.at("home/u/f")) }},
		{"the directory of a present file", "never", "/tmp/p/q", func() error { return os.Rename(r.at("tmp/p"), r.at("tmp/moved")) }},
	}
	r.put(t, "tmp/p/q", "")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			begun, _, over := r.waiting(t, file.Request{Sources: []string{"not this one", tt.missing}, To: tt.present})
			if !begun {
				t.Fatal("it did not wait: ", over())
			}
			for _, name := range strings.Fields("noise other noise") { // events that do not count
				r.put(t, "home/u/"+name, name)
				os.Remove(r.at("home/u/" + name))
			}
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
			if err := over(); err != nil {
				t.Error(err)
			}
			if begun, _, over := r.waiting(t, file.Request{Sources: []string{tt.missing}, To: tt.present}); begun {
				t.Error("it waits for what has happened")
			} else if err := over(); err != nil {
				t.Error(err)
			}
		})
	}
	begun, cut, over := r.waiting(t, file.Request{Sources: []string{"never"}})
	if cut(); !begun || !kind.Is(over(), kind.Canceled) {
		t.Error("an aborted wait goes on")
	}
}
