package cli

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseLocation(t *testing.T) {
	for s, want := range map[string]location{
		"i1:/a": {"i1", "/a"}, "i1:a:b": {"i1", "a:b"}, "a": {"", "a"}, "./a:b": {"", "./a:b"}, "/a:b": {"", "/a:b"}, ":a": {"", ":a"}, "i1:": {"i1", ""},
	} {
		if got := parseLocation(s); got != want {
			t.Errorf("parseLocation(%q) = %+v; want %+v", s, got, want)
		}
	}
}

// A file is copied with its permissions, and into DESTINATION if that is a directory.
func TestCopyFiles(t *testing.T) {
	g := newFakeGateway(t)
	dir := t.TempDir()
	local := filepath.Join(dir, "run.sh")
	if err := os.WriteFile(local, []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := g.verb(nil, "cp", local, "ia:/dir"); got.code != 0 || fmt.Sprint(g.files) != "map[/dir/run.sh 750:text]" {
		t.Errorf("up: exit %d %s, files %v", got.code, got.say, g.files)
	}
	if got := g.verb(nil, "cp", "iabc:/file", dir); got.code != 0 {
		t.Errorf("down: exit %d %s", got.code, got.say)
	}
	copied := filepath.Join(dir, "file")
	info, err := os.Stat(copied)
	if b, rerr := os.ReadFile(copied); err != nil || rerr != nil || string(b) != "content" || info.Mode().Perm() != 0o640 {
		t.Errorf("down: %q %v %v %v", b, info, err, rerr)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(local, link); err != nil {
		t.Fatal(err)
	}
	g.verb(nil, "cp", "iabc:/file", link)
	if b, err := os.ReadFile(local); err != nil || string(b) != "content" {
		t.Errorf("through a link: %q %v", b, err)
	}
	for args, say := range map[string]string{
		"cp a b": "one of SOURCE and DESTINATION must be SANDBOX:PATH", "cp iabc:/a i1:/b": "cp cannot copy between sandboxes",
		"cp iabc: b": "must be followed by a path", "cp iabc:/none .": "iabc:/none does not exist", "cp iend:/file .": "sandbox iend ended", "cp izz:/file .": "sandbox not found",
		"cp " + dir + " iabc:/file": "is a directory, but iabc:/file is a file",
	} {
		if got := g.verb(nil, strings.Fields(args)...); got.code != 1 || !strings.Contains(got.say, say) {
			t.Errorf("%s: exit %d %q; want %q", args, got.code, got.say, say)
		}
	}
}

// A directory has the same files and permissions after a round trip through tar.
func TestTreesKeepPermissions(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write := func(name string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 0o640)
	write("sub/run", 0o755)
	if err := os.Symlink("a", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(from, "sub"), 0o500); err != nil {
		t.Fatal(err)
	}
	x := &copier{a: &app{Config: Config{Err: io.Discard}}}
	var b bytes.Buffer
	if err := x.writeTree(&b, from); err != nil {
		t.Fatal(err)
	}
	if err := readInto(t, x, to, &b); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "-rw-r-----", "sub": "dr-x------", "sub/run": "-rwxr-xr-x", "link": "Lrwxrwxrwx"} {
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v %v; want %s", name, info, err, want)
		}
	}
	for _, dir := range []string{from, to} {
		if err := os.Chmod(filepath.Join(dir, "sub"), 0o700); err != nil { // so that it can be removed
			t.Error(err)
		}
	}
}

func readInto(t *testing.T, x *copier, dir string, r io.Reader) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return x.readTree(r, root)
}

// A sandbox cannot write outside of the destination.
func TestTreesStayInTheDestination(t *testing.T) {
	for name, entries := range map[string][]tar.Header{
		"a name with ..":   {{Name: "../out", Typeflag: tar.TypeReg}},
		"an absolute name": {{Name: "/tmp/../out", Typeflag: tar.TypeReg}},
		"a link to a directory": {
			{Name: "d", Linkname: "..", Typeflag: tar.TypeSymlink},
			{Name: "d/out", Typeflag: tar.TypeReg},
		},
		"a hard link": {{Name: "l", Linkname: "../secret", Typeflag: tar.TypeLink}},
	} {
		dir := t.TempDir()
		to := filepath.Join(dir, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			h.Mode = 0o644
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		x := &copier{a: &app{Config: Config{Err: io.Discard}}}
		if err := readInto(t, x, to, &b); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%s: a file was written outside", name)
		}
	}
}

// stat and file implement the data plane of the fake gateway.
func (g *fakeGateway) stat(w http.ResponseWriter, r *http.Request) {
	var body struct{ Path string }
	json.NewDecoder(r.Body).Decode(&body)
	switch body.Path {
	case "/file":
		fmt.Fprint(w, `{"entry":{"type":"FILE_TYPE_FILE","mode":416,"size":"7"}}`)
	case "/dir":
		fmt.Fprint(w, `{"entry":{"type":"FILE_TYPE_DIRECTORY","mode":493}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not_found","message":"it does not exist"}`)
	}
}

func (g *fakeGateway) putFile(_ http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	q := r.URL.Query()
	g.locked(func() { g.files = map[string]string{q.Get("path") + " " + q.Get("mode"): string(b)} })
}

// A local connection is forwarded to the sandbox's port and back, until both directions
// have ended.
func TestTunnelForwardsBothDirectionsToTheirEnd(t *testing.T) {
	g := newFakeGateway(t)
	c, err := newClient(g.srv.URL, "e2b_00")
	if err != nil {
		t.Fatal(err)
	}
	f, err := listen(t.Context(), "iabc", "0:7")
	if err != nil {
		t.Fatal(err)
	}
	defer f.ln.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := f.ln.Accept()
		if err == nil {
			err = c.tunnel(t.Context(), conn, f)
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", f.Local)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := strings.Repeat("x", 1<<20)
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	if want := fmt.Sprintf("port 7 got %d", len(text)); err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"x", "1:x", "1:0", "70000", "1:2:3", ""} {
		if _, err := listen(t.Context(), "iabc", bad); err == nil || strings.Contains(err.Error(), "strconv") {
			t.Errorf("port %q: %v", bad, err)
		}
	}
}

// tunnel is a port on which a server counts the bytes that it receives.
func (g *fakeGateway) tunnel(w http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		g.t.Error(err)
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	n, _ := io.Copy(io.Discard, buf)
	fmt.Fprintf(conn, "port %s got %d", r.PathValue("port"), n)
}
