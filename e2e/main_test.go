package e2e_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// shared is the `up` of all tests that do not kill it.
type shared struct {
	once sync.Once
	up   *rig.Up
	err  error
}

var common shared

// api returns the gateway that all tests share. Each test creates its own sandboxes.
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
		flag.Set(f.Name, "6")
	}
	// Every exchange of http.DefaultClient with a route of e2a is compared with the OpenAPI document.
	contract, err := rig.NewContract(http.DefaultTransport, "e2a")
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		os.Exit(1)
	}
	http.DefaultClient.Transport = contract
	code := m.Run()
	exchanges, took, err := contract.Check()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = max(code, 1)
	}
	if testing.Verbose() {
		fmt.Fprintf(os.Stderr, "%d exchanges compared with the OpenAPI document in %v\n", exchanges, took)
	}
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
	if err := rig.RemoveBuilds(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// kernelOfItsOwn reports whether sandboxes run on gVisor's kernel.
func kernelOfItsOwn(t testing.TB) bool {
	t.Helper()
	return rig.Driver(t) == "gvisor"
}

// rootInside reports whether sandboxes have a root user: on the host's kernel only if the
// service runs as root.
func rootInside(t *testing.T) bool {
	t.Helper()
	return os.Geteuid() == 0 || kernelOfItsOwn(t)
}

// onlyWithVolumes skips tests that need volumes, which gVisor supports only if the service
// runs as root.
func onlyWithVolumes(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && kernelOfItsOwn(t) {
		t.Skip("the driver does not support volumes here")
	}
}

// onlySandboxed skips tests of isolation with the driver direct.
func onlySandboxed(t *testing.T) {
	t.Helper()
	if rig.Driver(t) == "direct" {
		t.Skip("the direct driver isolates nothing")
	}
}
