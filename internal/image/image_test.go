package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// file is an entry of a layer: a directory if its name ends in a slash.
func file(name, body string) tar.Header {
	h := tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(body)), Linkname: body, ModTime: time.Unix(7, 0)}
	if strings.HasSuffix(name, "/") {
		h.Typeflag, h.Mode, h.Size = tar.TypeDir, 0o755, 0
	}
	return h
}

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}

func hard(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

func device(name string, flag byte) tar.Header {
	return tar.Header{Name: name, Typeflag: flag, Mode: 0o666, Devmajor: 1, Devminor: 3}
}

// layerTar writes entries; the body of a file is in its Linkname.
func layerTar(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Linkname = h.Linkname, ""
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func layerOf(b []byte) Layer {
	sum := sha256.Sum256(b)
	return Layer{Sum: hex.EncodeToString(sum[:]), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

func imageOf(t testing.TB, layers ...[]tar.Header) *Image {
	t.Helper()
	img := &Image{Facts: Facts{Arch: "amd64"}}
	for _, l := range layers {
		img.Layers = append(img.Layers, layerOf(layerTar(t, l...)))
	}
	return img
}

// entries yields the entries of a tar.
func entries(t testing.TB, all io.Reader) iter.Seq2[*tar.Header, io.Reader] {
	return func(yield func(*tar.Header, io.Reader) bool) {
		t.Helper()
		for r := tar.NewReader(all); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !yield(h, r) {
				return
			}
		}
	}
}

// packed packs an image and returns its files by path: the body, "-> target" or "= name".
func packed(t testing.TB, img *Image, opt Options) (map[string]string, template.Manifest, error) {
	t.Helper()
	var all bytes.Buffer
	raw, _, err := Pack(t.Context(), img, opt, func(_ context.Context, sum template.Sum, part []byte) error {
		if template.SumOf(part) != sum {
			t.Error("a part does not match its checksum")
		}
		all.Write(part)
		return nil
	})
	if err != nil {
		return nil, template.Manifest{}, err
	}
	m, _, err := template.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if int64(all.Len()) != m.Tar {
		t.Errorf("%d bytes of parts, the manifest has %d", all.Len(), m.Tar)
	}
	out := map[string]string{}
	for h, r := range entries(t, &all) {
		for dir := range out {
			if strings.HasPrefix(dir, h.Name+"/") && h.Typeflag == tar.TypeDir {
				t.Errorf("directory %s comes after its contents", h.Name)
			}
		}
		if len(h.PAXRecords) > 0 && h.PAXRecords["path"] == "" && h.PAXRecords["linkpath"] == "" {
			t.Errorf("%s has attributes %v", h.Name, h.PAXRecords)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			out[h.Name] = fmt.Sprintf("%o %d", h.Mode, h.Uid)
		case tar.TypeSymlink:
			out[h.Name] = "-> " + h.Linkname
		case tar.TypeLink:
			if _, ok := out[h.Linkname]; !ok {
				t.Errorf("%s is a hard link to %s, which comes later", h.Name, h.Linkname)
			}
			out[h.Name] = "= " + h.Linkname
		default:
			body, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out[h.Name] = string(body)
		}
	}
	if int64(len(out)) != m.Files {
		t.Errorf("%d files, the manifest has %d", len(out), m.Files)
	}
	return out, m, nil
}

// fitted lists the entries of every template.
var fitted = []string{"dev/", "proc/", "sys/", "tmp/", "run/", "etc/", "etc/passwd", "etc/group", "home/", "home/user/"}

func TestLayersAreMerged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layers [][]tar.Header
		want   map[string]string
	}{
		{"a later layer wins", [][]tar.Header{{file("a", "1"), file("b", "1")}, {file("a", "2")}},
			map[string]string{"a": "2", "b": "1"}},
		{"a whiteout hides lower layers", [][]tar.Header{{file("d/", ""), file("d/a", "1"), file("d/b", "1")}, {file("d/.wh.a", "")}},
			map[string]string{"d/": "755 0", "d/b": "1"}},
		{"a whiteout hides nothing of its own layer", [][]tar.Header{{file("a", "1")}, {file("a", "2"), file(".wh.a", "")}},
			map[string]string{"a": "2"}},
		{"a whiteout hides a whole directory", [][]tar.Header{{file("d/e/f", "1")}, {file("d/.wh.e", "")}},
			map[string]string{"d/": "755 0"}},
		{"an opaque directory keeps what its own layer has", [][]tar.Header{
			{file("d/", ""), file("d/old", "1"), file("d/e/", ""), file("d/e/old", "1")},
			{file("d/new", "2"), file("d/e/new", "2"), file("d/.wh..wh..opq", "")}},
			map[string]string{"d/": "755 0", "d/new": "2", "d/e/": "755 0", "d/e/new": "2"}},
		{"marks of other file systems are ignored", [][]tar.Header{{file(".wh..wh.plnk/", ""), file("a", "1")}},
			map[string]string{"a": "1"}},
		{"hard links of one file", [][]tar.Header{{file("b", "1"), hard("a", "b"), hard("c", "a")}},
			map[string]string{"a": "1", "b": "= a", "c": "= a"}},
		{"a hard link keeps the file that a later layer replaces", [][]tar.Header{{file("a", "1"), hard("b", "a")}, {file("a", "2")}},
			map[string]string{"a": "2", "b": "1"}},
		{"a hard link across layers", [][]tar.Header{{file("a", "1")}, {hard("b", "a")}, {file(".wh.a", "")}},
			map[string]string{"b": "1"}},
		{"a hard link to a symbolic link", [][]tar.Header{{link("a", "x"), hard("b", "a")}},
			map[string]string{"a": "-> x", "b": "-> x"}},
		{"a file below a link to a directory", [][]tar.Header{{file("usr/lib/", ""), link("lib", "usr/lib")}, {file("lib/x", "1")}},
			map[string]string{"usr/": "755 0", "usr/lib/": "755 0", "usr/lib/x": "1", "lib": "-> usr/lib"}},
		{"a link out of the tree resolves to its root", [][]tar.Header{{link("out", "../../../../in"), file("in/", "")}, {file("out/x", "1")}},
			map[string]string{"in/": "755 0", "in/x": "1", "out": "-> ../../../../in"}},
		{"an absolute link stays in the tree", [][]tar.Header{{link("out", "/in")}, {file("out/x", "1")}},
			map[string]string{"in/": "755 0", "in/x": "1", "out": "-> /in"}},
		{"a directory replaces a link", [][]tar.Header{{link("d", "/etc")}, {file("d/", ""), file("d/x", "1")}},
			map[string]string{"d/": "755 0", "d/x": "1"}},
		{"a file replaces a directory", [][]tar.Header{{file("d/x", "1")}, {file("d", "2")}},
			map[string]string{"d": "2"}},
		{"a repeated directory keeps its contents", [][]tar.Header{{file("d/x", "1")}, {file("d/", "")}},
			map[string]string{"d/": "755 0", "d/x": "1"}},
		{"devices in /dev are left out", [][]tar.Header{{file("dev/", ""), device("dev/null", tar.TypeChar), device("dev/log", tar.TypeFifo)}}, map[string]string{}},
		{"an absolute path is in the tree", [][]tar.Header{{file("/a", "1"), file("./b", "1")}},
			map[string]string{"a": "1", "b": "1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := packed(t, imageOf(t, tt.layers...), Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range fitted {
				if _, ok := got[p]; !ok {
					t.Errorf("%s is missing", p)
				}
				delete(got, p)
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestInvalidImagesAreRejected(t *testing.T) {
	longName := strings.Repeat("a/", 1500)
	deep := tar.Header{Name: strings.Repeat("a/", 3000) + "x", Typeflag: tar.TypeReg, Mode: 0o644}
	for _, tt := range []struct {
		name   string
		layers [][]tar.Header
		opt    Options
	}{
		{"a path with ..", [][]tar.Header{{file("a/../../etc/passwd", "x")}}, Options{}},
		{"a whiteout with ..", [][]tar.Header{{file("../.wh.x", "")}}, Options{}},
		{"a hard link to a file outside", [][]tar.Header{{hard("a", "../../etc/shadow")}}, Options{}},
		{"a hard link to a missing file", [][]tar.Header{{hard("a", "etc/shadow")}}, Options{}},
		{"a hard link to a directory", [][]tar.Header{{file("d/", ""), hard("a", "d")}}, Options{}},
		{"a hard link through a link to outside", [][]tar.Header{{link("out", "/etc"), hard("a", "out/hostname")}}, Options{}},
		{"a block device", [][]tar.Header{{device("disk", tar.TypeBlock)}}, Options{}},
		{"a character device", [][]tar.Header{{device("lib/null", tar.TypeChar)}}, Options{}},
		{"a device beside /dev", [][]tar.Header{{device("devices", tar.TypeChar)}}, Options{}},
		{"a pipe", [][]tar.Header{{device("pipe", tar.TypeFifo)}}, Options{}},
		{"a cycle of links", [][]tar.Header{{link("a", "b"), link("b", "a"), file("a/x", "")}}, Options{}},
		{"a file below a file", [][]tar.Header{{file("a", ""), file("a/x", "")}}, Options{}},
		{"an /etc that is a link", [][]tar.Header{{link("etc", "/proc/1/root/etc")}}, Options{}},
		{"a path too long", [][]tar.Header{{deep}}, Options{}},
		{"a path too long through a link", [][]tar.Header{{file(longName, ""), link("down", longName), file("down/"+longName+"/x", "")}}, Options{}},
		{"more bytes than allowed", [][]tar.Header{{file("a", strings.Repeat("x", 100_000))}}, Options{MaxSize: 50_000}},
		{"more bytes in all layers than allowed", [][]tar.Header{{file("a", strings.Repeat("x", 30_000))}, {file("b", strings.Repeat("x", 30_000))}}, Options{MaxSize: 50_000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			img := imageOf(t, tt.layers...)
			if got, _, err := packed(t, img, tt.opt); !kind.Is(err, kind.Invalid) {
				t.Errorf("got %v, %v; want an error of kind invalid", got, err)
			}
		})
	}
}

// sparse returns a layer of a few hundred bytes whose only file has size bytes.
func sparse(name string, size int64) []byte {
	b := make([]byte, 3*512)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[108:], "0000000\x000000000\x00")
	copy(b[124:], "00000000000\x00")
	copy(b[136:], "00000000000\x00")
	b[156] = tar.TypeGNUSparse
	copy(b[257:], "ustar  \x00")
	copy(b[386:], fmt.Sprintf("%011o\x00%011o\x00", size, 0)) // one piece of data, of no bytes, at its end
	copy(b[483:], fmt.Sprintf("%011o\x00", size))
	copy(b[148:], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func TestSparseFilesCountWithTheirSize(t *testing.T) {
	for size, want := range map[int64]bool{1 << 20: true, 1 << 32: false} {
		img := &Image{Layers: []Layer{layerOf(sparse("holes", size))}, Facts: Facts{Arch: "amd64"}}
		got, _, err := packed(t, img, Options{MaxSize: 1 << 30})
		if want && (err != nil || int64(len(got["holes"])) != size) || !want && !kind.Is(err, kind.Invalid) {
			t.Errorf("%d bytes: %d, %v", size, len(got["holes"]), err)
		}
	}
}

func TestLayerChecksumIsVerified(t *testing.T) {
	img := imageOf(t, []tar.Header{file("a", "1")})
	other := layerTar(t, file("a", "2"))
	img.Layers[0].Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(other)), nil }
	if _, _, err := packed(t, img, Options{}); !kind.Is(err, kind.Invalid) {
		t.Errorf("got %v", err)
	}
}

func TestDefaultUserIsAdded(t *testing.T) {
	users := "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh"
	got, _, err := packed(t, imageOf(t, []tar.Header{file("etc/passwd", users), file("bin/bash", "")}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := users + "\nuser:*:1000:1000:user:/home/user:/bin/bash\n"; got["etc/passwd"] != want || got["home/user/"] != "755 1000" {
		t.Errorf("passwd %q, home %q; want %q", got["etc/passwd"], got["home/user/"], want)
	}
	own := "user:x:7:7::/u:/bin/sh\n"
	if got, _, err = packed(t, imageOf(t, []tar.Header{file("etc/passwd", own)}), Options{}); err != nil || got["etc/passwd"] != own {
		t.Errorf("passwd %q, %v; want it unchanged", got["etc/passwd"], err)
	}
	sudo := file("usr/bin/sudo", "x")
	sudo.Mode = 0o4755
	img := imageOf(t, []tar.Header{sudo})
	img.Sudo = true
	if got, m, err := packed(t, img, Options{}); err != nil || !m.Sudo || !strings.Contains(got["etc/sudoers.d/millrace-user"], "NOPASSWD") {
		t.Errorf("sudo: %v, %v", got, err)
	}
}

// aliases returns links, each to the next.
func aliases(name string, n int) (out []tar.Header) {
	for i := range n {
		out = append(out, link(fmt.Sprintf("%s%d", name, i), fmt.Sprintf("/%s%d", name, i+1)))
	}
	return out
}

func TestAccountFilesBehindLinksAreKept(t *testing.T) {
	const users = "root:x:0:0:root:/root:/bin/sh\napp:x:7:7::/:/bin/sh\n"
	there := file("usr/passwd", users)
	for name, l := range map[string][][]tar.Header{
		"a link":                          {{there, link("etc/passwd", "../usr/passwd")}},
		"an absolute one":                 {{there, link("etc/passwd", "/usr/passwd")}},
		"one before the file":             {{link("etc/passwd", "../usr/passwd")}, {there}},
		"one to a file of a lower layer":  {{file("other", "x"), there}, {file("more", "y")}, {link("etc/passwd", "../usr/passwd")}},
		"one to a link":                   {{there, link("etc/passwd", "own"), link("etc/own", "/usr/passwd")}},
		"one through a link":              {{there, link("lib", "usr/bin"), file("usr/bin/", ""), link("etc/passwd", "/lib/../passwd")}},
		"many":                            {append(aliases("l", 30), there, link("l30", "usr/passwd"), link("etc/passwd", "/l0"))},
		"another name":                    {{there, hard("etc/passwd", "usr/passwd")}},
		"another name of a lower layer's": {{there}, {hard("etc/passwd", "usr/passwd")}},
		"a link's other name":             {{there, link("l", "/usr/passwd"), hard("etc/passwd", "l")}},
	} {
		got, _, err := packed(t, imageOf(t, l...), Options{})
		if err != nil || !strings.HasPrefix(got["etc/passwd"], users+"user:") {
			t.Errorf("%s: %q, %v", name, got["etc/passwd"], err)
		}
		if got["usr/passwd"] != users {
			t.Errorf("%s: the target is now %q", name, got["usr/passwd"])
		}
	}
	got, _, err := packed(t, imageOf(t, []tar.Header{file("usr/group", "app:x:7:\n"), link("etc/group", "../usr/group")}), Options{})
	if err != nil || !strings.HasPrefix(got["etc/group"], "app:x:7:\n") {
		t.Errorf("group: %q, %v", got["etc/group"], err)
	}
}

func TestUnreadableAccountFilesAreRejected(t *testing.T) {
	large := file("usr/passwd", strings.Repeat("x", maxKept+1))
	for name, l := range map[string][]tar.Header{
		"a circle":               {link("etc/passwd", "own"), link("etc/own", "passwd")},
		"itself":                 {link("etc/passwd", "passwd")},
		"too many links":         append(aliases("l", maxHops), file(fmt.Sprint("l", maxHops), "x"), link("etc/passwd", "/l0")),
		"out of the tree":        {link("etc/passwd", "../../etc/own"), file("etc/own", "x")},
		"out of it by another":   {link("l", ".."), link("etc/passwd", "/l/etc/own"), file("etc/own", "x")},
		"a directory":            {file("usr/passwd/", ""), link("etc/passwd", "/usr/passwd")},
		"a directory of its own": {file("etc/passwd/", "")},
		"a directory for group":  {file("usr/x/", ""), link("etc/group", "/usr/x")},
		"too large a file":       {large, link("etc/passwd", "/usr/passwd")},
		"too large another's":    {large, hard("etc/group", "usr/passwd")},
	} {
		if _, _, err := packed(t, imageOf(t, l), Options{}); !kind.Is(err, kind.Invalid) || !strings.Contains(kind.Message(err), "/etc/") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, to := range map[string]string{"nothing": "/usr/passwd", "below a file": "/usr/file/passwd", "what is not in a template": "/dev/passwd"} {
		got, _, err := packed(t, imageOf(t, []tar.Header{file("usr/file", "x"), file("dev/passwd", "x"), link("etc/passwd", to)}), Options{})
		if err != nil || !strings.HasPrefix(got["etc/passwd"], "root:x:0:0:") {
			t.Errorf("a link to %s counts as a missing file: %q, %v", name, got["etc/passwd"], err)
		}
	}
}

func TestEqualImagesGiveEqualTemplates(t *testing.T) {
	layers := [][]tar.Header{{file("d/b", "1"), file("d/a", "2"), link("c", "d"), hard("e", "d/a")}, {file("d/f", strings.Repeat("x", 3*template.PartSize))}}
	var ids []template.ID
	for range 3 {
		_, id, err := Pack(t.Context(), imageOf(t, layers...), Options{}, func(context.Context, template.Sum, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("three ids: %v", ids)
	}
}

// ociImage returns an image built by the OCI library.
func ociImage(t testing.TB) v1.Image {
	t.Helper()
	img := empty.Image
	for _, l := range [][]tar.Header{{file("etc/passwd", "node:x:7:7::/:/bin/sh\n"), file("gone", "x")}, {file(".wh.gone", ""), file("app", "hello")}} {
		b := layerTar(t, l...)
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture = "linux", runtime.GOARCH
	conf.Config = v1.Config{
		Env: []string{"PATH=/app/bin:/bin", "A=b=c"}, WorkingDir: "/srv/../app/", User: "node:staff",
		Entrypoint: []string{"serve"}, Cmd: []string{"--all"},
	}
	if img, err = mutate.ConfigFile(img, conf); err != nil {
		t.Fatal(err)
	}
	return img
}

func TestOpen(t *testing.T) {
	img := ociImage(t)
	srv := httptest.NewServer(registry.New())
	t.Cleanup(srv.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://") + "/some/image:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	oci := filepath.Join(dir, "layout")
	index, err := layout.Write(oci, empty.Index)
	if err == nil {
		err = index.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	saved, archived := filepath.Join(dir, "saved"), filepath.Join(dir, "archived")
	tag, err := name.NewTag("some/image:v1")
	if err == nil {
		err = tarball.WriteToFile(saved, tag, img)
	}
	if err == nil {
		err = tarDir(oci, archived)
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []template.ID
	for name, source := range map[string]string{"a registry": ref.String(), "an OCI layout": oci, "docker save": saved, "a tar of a layout": archived} {
		t.Run(name, func(t *testing.T) {
			got, err := Open(t.Context(), source, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			files, m, err := packed(t, got, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if files["app"] != "hello" || files["gone"] != "" {
				t.Errorf("files %v", files)
			}
			if m.User != "node" || m.Workdir != "/app" || m.Env["A"] != "b=c" || !slices.Equal(m.Start, []string{"serve", "--all"}) {
				t.Errorf("manifest %+v", m)
			}
			_, id, _ := m.Encode()
			ids = append(ids, id)
		})
	}
	if len(ids) != 4 || len(slices.Compact(ids)) != 1 {
		t.Errorf("the same image gave %v", ids)
	}
	for name, source := range map[string]string{
		"an unknown repository": strings.TrimPrefix(srv.URL, "http://") + "/other/image", "no file": "/nowhere/at-all", "an empty directory": t.TempDir(),
	} {
		if _, err := Open(t.Context(), source, t.TempDir()); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

// A registry's configuration of an image is read into memory only up to a bound.
func TestConfigurationIsBounded(t *testing.T) {
	big, err := mutate.ConfigFile(ociImage(t), &v1.ConfigFile{OS: "linux", Author: strings.Repeat("x", maxConfig)})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(registry.New())
	t.Cleanup(srv.Close)
	at := strings.TrimPrefix(srv.URL, "http://") + "/some/image:v1"
	ref, err := name.ParseReference(at)
	if err == nil {
		err = remote.Write(ref, big)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), at, t.TempDir()); !kind.Is(err, kind.Invalid) || !strings.Contains(err.Error(), "its configuration has") {
		t.Errorf("%v, want an error of kind invalid", err)
	}
}

func tarDir(dir, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return w.Close()
}

func TestTarOfFilesIsAnImage(t *testing.T) {
	p := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(p, layerTar(t, file("./", ""), file("./a", "1"), device("./dev/null", tar.TypeChar)), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := Open(t.Context(), p, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := packed(t, img, Options{Files: map[string]string{"usr/local/bin/x": "#!", "a": ""}}); err != nil || got["usr/local/bin/x"] != "#!" || got["a"] != "" {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzPack(f *testing.F) {
	for _, l := range [][]tar.Header{
		{file("d/", ""), file("d/a", "1"), hard("b", "d/a"), link("c", "d"), file("c/x", "")},
		{file("d/.wh..wh..opq", ""), file(".wh.d", "")},
	} {
		f.Add(layerTar(f, l...), layerTar(f, file("x", "")))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		img := &Image{Layers: []Layer{layerOf(one), layerOf(two)}, Facts: Facts{Arch: "amd64"}}
		files, _, err := packed(t, img, Options{MaxSize: 1 << 20})
		if err != nil {
			return
		}
		for p := range files {
			if strings.HasPrefix(p, "/") || slices.Contains(strings.Split(p, "/"), "..") {
				t.Errorf("path %q", p)
			}
		}
	})
}

func TestAddedFilesInBinAreExecutable(t *testing.T) {
	img := &Image{Facts: Facts{Arch: "amd64"}, Layers: []Layer{{Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layerTar(t, file("./", ""), file("./a", "1")))), nil
	}}}}
	files := map[string]string{"usr/local/bin/program": "\x7fELF", "opt/script": "#!/bin/sh", "etc/text": "x"}
	var all bytes.Buffer
	keep := func(_ context.Context, _ template.Sum, part []byte) error { all.Write(part); return nil }
	if _, _, err := Pack(t.Context(), img, Options{Files: files}, keep); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for h := range entries(t, &all) {
		name := strings.TrimPrefix(h.Name, "./")
		if _, ours := files[name]; !ours {
			continue
		}
		seen++
		if can := h.Mode&0o111 == 0o111; can != (name != "etc/text") {
			t.Errorf("%s has mode %o", name, h.Mode)
		}
	}
	if seen != len(files) {
		t.Errorf("%d of %d files", seen, len(files))
	}
}
