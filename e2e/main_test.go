package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// shared is the one `up` of all tests that do not kill it.
type shared struct {
	once sync.Once
	up   *rig.Up
	err  error
}

var common shared

// api is a gateway that all tests share. Each test makes its own sandboxes.
func api(t testing.TB) *rig.API {
	t.Helper()
	return sharedUp(t).API
}

func sharedUp(t testing.TB) *rig.Up {
	t.Helper()
	common.once.Do(func() {
		common.up, common.err = rig.StartUp(rig.Options{Args: []string{"--registries", "127.0.0.1", "--capacity", "256"}})
	})
	if common.err != nil {
		t.Fatal(common.err)
	}
	return common.up
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait rather than work.
	if f := flag.Lookup("test.parallel"); f != nil && !given(f.Name) {
		flag.Set(f.Name, "6") //nolint:errcheck // then they take longer
	}
	code := m.Run()
	if common.up != nil {
		dump := common.up.Dump()
		if err := common.up.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: shared up:", err)
			code = max(code, 1)
		}
		if code != 0 {
			fmt.Fprint(os.Stderr, dump)
		} else if i := strings.Index(dump, "panic"); i >= 0 {
			fmt.Fprintln(os.Stderr, "FAIL: shared up:", dump[i:])
			code = 1
		}
	}
	if err := rig.Forget(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// kernelOfItsOwn reports whether gVisor serves what runs in sandboxes.
func kernelOfItsOwn(t testing.TB) bool {
	t.Helper()
	return rig.Driver(t) == "gvisor"
}

// rootInside reports whether sandboxes have a root: with the host's kernel only where
// the service is root, too.
func rootInside(t *testing.T) bool {
	t.Helper()
	return os.Geteuid() == 0 || kernelOfItsOwn(t)
}

// onlyWithVolumes skips what needs volumes, which gVisor shows where the service is root.
func onlyWithVolumes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && kernelOfItsOwn(t) {
		t.Skip("the driver shows no volumes here")
	}
}

// onlySandboxed skips what the driver that isolates nothing cannot show.
func onlySandboxed(t *testing.T) {
	t.Helper()
	if rig.Driver(t) == "direct" {
		t.Skip("the direct driver isolates nothing")
	}
}
