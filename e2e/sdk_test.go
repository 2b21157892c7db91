package e2e_test

import (
	"os"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// sdkEnv returns the environment that points the SDK at a gateway.
func sdkEnv(t testing.TB, a *rig.API) []string {
	env := []string{"E2B_API_KEY=" + a.Key, "E2B_API_URL=" + a.URL, "E2B_SANDBOX_URL=" + a.URL}
	if rig.Driver(t) != "direct" && os.Geteuid() == 0 {
		env = append(env, "MILLRACE_E2E_ROOT=1")
	}
	if kernelOfItsOwn(t) {
		// Sandboxes of this test use the CPU, and the SDK's timeout is short: of twenty at
		// once on two CPUs each has a tenth of a CPU.
		env = append(env, "MILLRACE_E2E_WIDE=3")
	}
	return env
}

// runNode runs a script and reports each of its cases as a sub-test.
func runNode(t *testing.T, a *rig.API, script string, args ...string) {
	t.Helper()
	done := false
	for _, r := range rig.Node(t, sdkEnv(t, a), script, args...) {
		done = done || r.Name == "done" || r.Name == "smoke"
		t.Run(r.Name, func(t *testing.T) {
			if !r.OK {
				t.Error(r.Error)
			}
		})
	}
	if !done {
		t.Error("the script did not finish")
	}
}

// TestSDK runs the released e2b packages, unmodified: the newest, and one of the
// older generation of the control plane.
func TestSDK(t *testing.T) {
	a := api(t)
	for _, pkg := range []string{"e2b", "e2b-245"} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			runNode(t, a, "suite.mjs", pkg)
		})
	}
}

// TestInterpreterSDK runs the released code interpreter package, unmodified.
func TestInterpreterSDK(t *testing.T) {
	runNode(t, api(t), "interpreter.mjs")
}

// TestCLIOfE2B runs E2B's released command line program, unmodified.
func TestCLIOfE2B(t *testing.T) {
	t.Parallel()
	runNode(t, api(t), "cli.mjs")
}

// TestDurableStreams runs the released client of that protocol, unmodified.
func TestDurableStreams(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	ended := a.Commands(t, box.ID, "echo one; echo two; echo three").All(t)
	running := a.Commands(t, box.ID, "for i in $(seq 1 20); do echo tick $i; sleep 0.1; done").Must(t)
	base := a.URL + "/v1/streams/"
	env := []string{"MILLRACE_KEY=" + a.Key}
	for _, r := range rig.Node(t, env, "durable.mjs", base+ended[0].Process, base+running.Process) {
		t.Run(r.Name, func(t *testing.T) {
			if !r.OK {
				t.Error(r.Error)
			}
		})
	}
}
