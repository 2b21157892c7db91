//go:build linux

package drivertest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Maker makes one of the drivers that RunAcross tests.
type Maker struct {
	Name string
	New  func(t *testing.T) driver.Driver
}

// RunAcross tests drivers with the same Caps.FileFits: a snapshot of files by one of them
// is complete in an instance of another.
func RunAcross(t *testing.T, makers ...Maker) {
	suites := map[string]*suite{}
	for _, m := range makers {
		suites[m.Name], _ = probed(t, m.New)
	}
	for _, first := range makers {
		for _, second := range makers {
			for _, tree := range []bool{false, true} {
				name := first.Name + " to " + second.Name
				change := func(*driver.Spec) {}
				if tree {
					path := Tree(t)
					name, change = name+", of a template", func(sp *driver.Spec) { sp.Template, sp.Root = "tree", path }
				}
				t.Run(name, func(t *testing.T) { compareAcross(t, suites[first.Name], suites[second.Name], change) })
			}
		}
	}
}

// The first instance fills a directory, the second changes everything that can be changed in
// it. Steps that need root inside are left out without it.
const (
	acrossHome = "/home/user"
	acrossFill = `set -e; cd $AT; mkdir -p d/deep/er gone/with/all kept; echo one > d/file; ln d/file d/same; ln d/file kept/same
		busybox ln -s file d/link; busybox ln -s /nowhere d/broken; busybox mkfifo d/pipe; echo shut > d/shut; echo x > gone/with/file; echo away > away
		: > empty; echo end | busybox dd of=sparse bs=1 seek=$SPARSE 2>/dev/null
		i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo $i > kept/$i; done
		b=0123456789abcdef; while [ ${#b} -lt 300000 ]; do b=$b$b; done; echo $b$b$b$b > big; echo "odd" > "a name with spaces
and a line"; echo done`
	acrossMode = `set -e; cd $AT; rm -f .bash_logout; for f in .bashrc .profile; do [ ! -f $f ] || busybox touch -d @1000000000 $f; done; busybox chmod 400 d/shut; busybox chmod 4751 d/file; busybox chmod 2770 d/deep; busybox chmod 1777 kept; busybox chmod 500 d/deep/er
		busybox touch -h -d @1000000000 d/link d/file d/shut empty; busybox touch -d @1100000000 d/deep kept; echo done`
	acrossOwn    = `set -e; cd $AT; busybox chown 1000:1000 d/shut kept; busybox chown -h 7:9 d/link d/pipe; busybox chown 65000:65001 empty gone; echo done`
	acrossChange = `set -e; cd $AT; rm -rf gone; rm away d/link kept/7; mkdir gone; echo new > gone/new; echo changed > kept/8; echo more >> big
		rm kept/9; mkdir kept/9; echo dir > kept/9/file; busybox chmod 700 d/deep/er; rm -rf d/deep; echo file > d/deep; busybox mv kept/10 kept/moved
		busybox chmod 640 kept/11; echo two > kept/two; ln kept/two kept/names; echo done`
)

// compareAcross goes from an instance of the first driver to one of the second, and from that to
// one of each. Where hostd is not root, an instance of driver "namespace" has one user.
func compareAcross(t *testing.T, first, second *suite, change func(*driver.Spec)) {
	root := os.Geteuid() == 0
	sparse := "3000000000"
	if !root { // with more of them than gVisor could take
		sparse = "60000000"
	}
	begin := func(s *suite, from string) *instance {
		return s.create(t, func(sp *driver.Spec) {
			change(sp)
			sp.From, sp.Env = from, map[string]string{"AT": acrossHome, "SPARSE": sparse}
		})
	}
	owners := root || first.own && second.own
	same := func(b *instance, want string) {
		t.Helper()
		if got := b.list(t, owners); got != want {
			t.Errorf("in an instance of %s: %s", b.d.Name(), difference(want, got))
		}
	}
	a := begin(first, "")
	a.must(t, acrossFill)
	if root || first.own {
		a.must(t, acrossOwn)
	}
	a.must(t, acrossMode)
	a.attribute(t, acrossHome+"/big", "user.note", "of the file")
	a.attribute(t, acrossHome+"/kept", "user.note", "of the directory")
	want := a.list(t, owners)
	dir := a.snapshot(t)
	same(a, want)
	if used, err := live.DiskUsage(t.Context(), dir, nil); err != nil || used > 16<<20 {
		t.Errorf("the snapshot has %d bytes, %v; want the hole kept", used, err)
	}
	b := begin(second, dir)
	same(b, want)
	if got := b.sh(t, "hostname; cat /etc/hostname"); strings.Contains(got, string(a.spec.ID)) {
		t.Errorf("the second instance has the name of the first: %q", got)
	}
	b.must(t, acrossChange)
	want = b.list(t, owners)
	dir = b.snapshot(t)
	for _, s := range []*suite{first, second} {
		same(begin(s, dir), want)
	}
}

// must runs a script that prints "done" at its end.
func (b *instance) must(t *testing.T, script string) {
	t.Helper()
	if got := b.sh(t, script); !strings.HasSuffix(got, "done") {
		t.Fatalf("%s: %q", b.d.Name(), got)
	}
}

func (b *instance) attribute(t *testing.T, path, name, value string) {
	t.Helper()
	if r := send(t, b.Instance, request{Call: "attribute", Args: []string{path, name, value}}); r.Out != "" {
		t.Fatalf("%s: %s", b.d.Name(), r.Out)
	}
}

func (b *instance) list(t *testing.T, owners bool) string {
	t.Helper()
	return send(t, b.Instance, request{Call: "list", Args: []string{acrossHome, strconv.FormatBool(owners)}}).Out
}

// difference returns the lines that only one of two lists has.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	for _, line := range w {
		if !slices.Contains(g, line) {
			fmt.Fprintf(&b, "\n- %s", line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			fmt.Fprintf(&b, "\n+ %s", line)
		}
	}
	return b.String()
}

// setAttribute runs inside an instance.
func setAttribute(path, name, value string) string {
	if err := unix.Setxattr(path, name, []byte(value), 0); err != nil {
		return err.Error()
	}
	return ""
}

// listAll describes, inside an instance, all files in a directory, without fractions of
// seconds, and with their owners or without.
func listAll(top string, owners bool) string {
	var b strings.Builder
	seen := map[[2]uint64]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %o", path, st.Mode)
		if owners {
			fmt.Fprintf(&b, " of %d:%d", st.Uid, st.Gid)
		}
		if !d.IsDir() {
			id := [2]uint64{uint64(st.Dev), st.Ino}
			if first, ok := seen[id]; ok {
				fmt.Fprintf(&b, " same as %q", first)
			}
			seen[id] = path
			fmt.Fprintf(&b, " %d bytes", st.Size)
		}
		if st.Mtim.Sec < 1_200_000_000 { // a time that the test set, not that of the moment
			fmt.Fprintf(&b, " at %d", st.Mtim.Sec)
		}
		if to, err := os.Readlink(path); err == nil {
			fmt.Fprintf(&b, " to %q", to)
		}
		if d.Type().IsRegular() {
			body, err := readEnd(path, st.Size)
			fmt.Fprintf(&b, " %x %v", sha256.Sum256(body), err)
		}
		value := make([]byte, 100)
		if n, err := unix.Lgetxattr(path, "user.note", value); err == nil {
			fmt.Fprintf(&b, " %q", value[:n])
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return b.String()
}

// readEnd returns the end of a file, or all of it if it is not large.
func readEnd(path string, size int64) ([]byte, error) {
	const most = 8 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at := max(0, size-most)
	if at > 0 {
		at = size - 1<<10
	}
	return io.ReadAll(io.NewSectionReader(f, at, size-at))
}
