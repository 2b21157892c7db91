package e2e_test

import (
	"net/http"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestBackendAIClient runs the released npm client, unmodified, with two gateways and each driver.
func TestBackendAIClient(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"namespace", "gvisor"} {
		t.Run(driver, func(t *testing.T) {
			rig.SkipUnless(t, rig.Options{Driver: driver})
			apis := newTopology(t, rig.Topology{Gateways: 2, Driver: driver}).APIs
			access, secret := pairOf(t, apis[0])
			env := []string{"BACKEND_ACCESS_KEY=" + access, "BACKEND_SECRET_KEY=" + secret}
			done := false
			for _, r := range rig.Node(t, env, "backendai.mjs", "base", apis[0].URL, apis[1].URL) {
				done = done || r.Name == "done"
				if !r.OK {
					t.Errorf("%s: %s", r.Name, r.Error)
				}
			}
			if !done {
				t.Error("the script did not finish")
			}
		})
	}
}

// pairOf creates a key pair at a gateway.
func pairOf(t testing.TB, a *rig.API) (access, secret string) {
	t.Helper()
	var made struct{ AccessKey, SecretKey string }
	a.Want(t, http.StatusCreated, http.MethodPost, "/api-keys", map[string]any{"name": t.Name(), "pair": true}).Decode(t, &made)
	return made.AccessKey, made.SecretKey
}
