package file_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

func TestRequestsSurviveARoundTrip(t *testing.T) {
	for _, r := range []file.Request{
		{Op: file.OpStat, Path: "/a"},
		{Op: file.OpMove, Path: "~/x", To: "y", User: "root"},
		{Op: file.OpWrite, Path: "p", Mode: 0o600, Meta: map[string]string{"k": "v", "empty": ""}},
		{Op: file.OpList, Path: "", Depth: 7},
		{Op: file.OpCompose, Path: "all", Sources: []string{"a", "", "b", "a"}},
		{Op: file.OpMakeDir, Path: "d", Force: true, Mode: 0o700, User: file.Owner(7, file.Keep)},
		{Op: file.OpWrite, Path: "f", Fresh: true},
		{Op: file.OpCopy, Path: "a", To: "b", Single: true, Confine: &process.Confinement{Read: []string{"/"}, Write: []string{"/w"}}},
		{Op: file.OpRemove, Path: "a", Exists: true},
		{Op: file.OpWalk, Path: "a", Depth: 9, MaxDirs: 8, MaxEntries: 7, Follow: true, SkipHidden: true},
		{Op: file.OpAwait, Sources: []string{"/a", "/b"}, To: "/c"},
	} {
		got, err := file.Parse(r.Append(nil))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("got %+v, %v; want %+v", got, err, r)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	long := strings.Repeat("x", file.MaxPath+1)
	tests := []struct {
		name string
		req  file.Request
		want kind.Kind
	}{
		{"no operation", file.Request{Path: "/"}, kind.Unimplemented},
		{"an unknown operation", file.Request{Op: 99}, kind.Unimplemented},
		{"a long path", file.Request{Op: file.OpStat, Path: long}, kind.Invalid},
		{"a long destination", file.Request{Op: file.OpMove, To: long}, kind.Invalid},
		{"NUL in a path", file.Request{Op: file.OpStat, Path: "a\x00b"}, kind.Invalid},
		{"NUL in a source", file.Request{Op: file.OpCompose, Sources: []string{"a\x00b"}}, kind.Invalid},
		{"too many sources", file.Request{Op: file.OpCompose, Sources: make([]string, file.MaxSources+1)}, kind.Invalid},
		{"long sources", file.Request{Op: file.OpCompose, Sources: []string{long[1:], long[1:], long[1:], long[1:], long[1:], long[1:], long[1:], long[1:], "x"}}, kind.Invalid},
		{"NUL in a user", file.Request{Op: file.OpStat, User: "a\x00b"}, kind.Unauthenticated},
		{"an empty key", file.Request{Op: file.OpWrite, Meta: map[string]string{"": "v"}}, kind.Invalid},
		{"a long key", file.Request{Op: file.OpWrite, Meta: map[string]string{long[:247]: "v"}}, kind.Invalid},
		{"much metadata", file.Request{Op: file.OpWrite, Meta: map[string]string{"k": long}}, kind.Invalid},
		{"metadata that is not ASCII", file.Request{Op: file.OpWrite, Meta: map[string]string{"k": "ü"}}, kind.Invalid},
		{"a relative path of a confinement", file.Request{Op: file.OpRead, Confine: &process.Confinement{Read: []string{"a"}}}, kind.Invalid},
		{"a long confinement", file.Request{Op: file.OpRead, Confine: &process.Confinement{Read: slices.Repeat([]string{"/" + long[2:]}, 20)}}, kind.Invalid},
		{"a line end in metadata", file.Request{Op: file.OpWrite, Meta: map[string]string{"k": "a\nb"}}, kind.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := file.Parse(tt.req.Append(nil)); !kind.Is(err, tt.want) {
				t.Errorf("got %v, want kind %v", err, tt.want)
			}
		})
	}
}

func TestFramesAreBounded(t *testing.T) {
	b := file.AppendFrame(nil, []byte("one"))
	b = file.AppendFrame(b, nil)
	r := bytes.NewReader(b)
	for _, want := range []string{"one", ""} {
		if got, err := file.ReadFrame(r, nil); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := file.ReadFrame(r, nil); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
	if _, err := file.ReadFrame(bytes.NewReader(b[:5]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v", err)
	}
	if _, err := file.ReadFrame(strings.NewReader("\xff\xff\xff\xff"), nil); !kind.Is(err, kind.Invalid) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add((&file.Request{Op: file.OpWrite, Path: "/a", Meta: map[string]string{"k": "v"}}).Append(nil))
	f.Add([]byte("\x08\x01\x12\x02/a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := file.Parse(b)
		if err != nil {
			return
		}
		again, err := file.Parse(r.Append(nil))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

func TestOwnersSurviveARoundTrip(t *testing.T) {
	for _, want := range [][2]int{{0, 0}, {file.Keep, 5}, {1000, file.Keep}, {65534, 65534}} {
		u, g, err := file.ParseOwner(file.Owner(want[0], want[1]))
		if err != nil || u != want[0] || g != want[1] {
			t.Errorf("%v: %d, %d, %v", want, u, g, err)
		}
	}
	for _, s := range []string{"1", ":", "a:b", "-2:0", "0:65535", "1:2:3", "root"} {
		if _, _, err := file.ParseOwner(s); !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestHandleCallsSurviveARoundTrip(t *testing.T) {
	for _, c := range []file.HandleCall{
		{Op: file.HandleOpen, Handle: 7, Path: "/a", Replace: true, Confine: &process.Confinement{Write: []string{"/"}}},
		{Op: file.HandleRead, Handle: 1, Offset: 1 << 40, Length: file.MaxBlock},
		{Op: file.HandleClose},
	} {
		if got, err := file.ParseHandleCall(c.Append(nil)); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("got %+v, %v; want %+v", got, err, c)
		}
	}
	for _, c := range []file.HandleCall{
		{}, {Op: 5}, {Op: file.HandleOpen, Path: "a\x00"}, {Op: file.HandleRead, Length: file.MaxBlock + 1}, {Op: file.HandleRead, Offset: 1<<63 - 1},
	} {
		if _, err := file.ParseHandleCall(c.Append(nil)); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	for _, r := range []file.HandleResult{{Length: 5}, {Failed: true, Kind: kind.NotFound, Msg: "missing"}, {}} {
		if got, err := file.ParseHandleResult(r.Append(nil)); err != nil || got != r || (got.Err() != nil) != r.Failed {
			t.Errorf("got %+v, %v; want %+v", got, err, r)
		}
	}
}

func FuzzParseHandleCall(f *testing.F) {
	f.Add((&file.HandleCall{Op: file.HandleOpen, Handle: 7, Path: "/a"}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := file.ParseHandleCall(b)
		if err != nil {
			return
		}
		again, err := file.ParseHandleCall(c.Append(nil))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}

func TestFoundSurvivesARoundTrip(t *testing.T) {
	for _, f := range []file.Found{{Path: "/a", Dir: true}, {Path: "/b"}, {Path: "/c", Failed: "permission denied"}, {Truncated: true}} {
		if got, err := file.ParseFound(f.Append(nil)); err != nil || got != f {
			t.Errorf("got %+v, %v; want %+v", got, err, f)
		}
	}
}
