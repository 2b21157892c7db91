package gateway_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway"
)

// E-277, AMB-19: a tenant's requests are limited per minute, those to the catalogue on their own, over
// all gateways.
func TestTenantsAreLimited(t *testing.T) {
	u := newUserFixture(t)
	you, bob := u.signUp("you@example.com"), u.signUp("bob@example.com")
	limited := u.another(gateway.UsersConfig{Requests: 3, Catalogue: 20})
	for range 3 {
		limited.as(you.APIKey, "GET", "/v1/tenants/me", "").want(t, "within the limit", 200, "")
	}
	a := limited.as(you.APIKey, "GET", "/v1/tenants/me", "").want(t, "beyond the limit", 429, "")
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 75 {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	limited.as(bob.APIKey, "GET", "/v1/tenants/me", "").want(t, "another tenant", 200, "")
	limited.do("GET", "/v2/sandboxes", "", "X-Api-Key", you.APIKey).want(t, "another family", 200, "")
	for range 20 {
		limited.as(you.APIKey, "GET", "/v1/templates", "").want(t, "the catalogue", 200, "")
	}
	limited.as(you.APIKey, "GET", "/v1/templates/deictic", "").want(t, "the catalogue beyond the limit", 429, "")

	// Another gateway learns of those requests: alone it would answer 20 of its own.
	other := u.another(gateway.UsersConfig{Catalogue: 20})
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 0; other.as(you.APIKey, "GET", "/v1/templates", "").code != 429; n++ {
		if n == 18 {
			t.Fatal("another gateway does not know of the requests")
		}
		<-tick.C
	}
}
