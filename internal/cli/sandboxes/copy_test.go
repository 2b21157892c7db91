package sandboxes

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/clitest"
	"github.com/millrace/millrace/internal/cli/command"
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
	x := &copier{a: &app{&command.Env{Config: command.Config{Err: io.Discard}}}}
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
		x := &copier{a: &app{&command.Env{Config: command.Config{Err: io.Discard}}}}
		if err := readInto(t, x, to, &b); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%s: a file was written outside", name)
		}
	}
}

// A local connection is forwarded to the sandbox's port and back, until both directions
// have ended.
func TestTunnelForwardsBothDirectionsToTheirEnd(t *testing.T) {
	g := clitest.NewGateway(t)
	c, err := client.New(g.Server.URL, "e2b_00")
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
			err = tunnel(t.Context(), c, conn, f)
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
