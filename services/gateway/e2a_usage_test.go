package gateway_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// used stores that a sandbox of a tenant started a number of days ago and used CPU time then and on
// the day after.
func (u *userFixture) used(tenant, id string, daysAgo int, first, second time.Duration) {
	u.t.Helper()
	at := u.clock.Now().AddDate(0, 0, -daysAgo)
	f := usage.New(tenant, id, usage.Sandbox, at).Measure(at, first)
	if second > 0 {
		f = f.Measure(at.AddDate(0, 0, 1), first+second)
	}
	if err := u.log.Meter().Put(u.t.Context(), &f); err != nil {
		u.t.Fatal(err)
	}
}

// midMonth moves the clock to noon of the 15th of the next month.
func (u *userFixture) midMonth() time.Time {
	now := u.clock.Now().UTC()
	u.clock.move(time.Date(now.Year(), now.Month()+1, 15, 12, 0, 0, 0, time.UTC).Sub(now))
	return u.clock.Now()
}

// E-285 to E-295, E-335, E-337: what a tenant used, on two gateways, and not what others used.
func TestUsage(t *testing.T) {
	u := newUserFixture(t)
	now := u.midMonth()
	day := func(ago int) string { return usage.DayOf(now.AddDate(0, 0, -ago)).String() }
	first, last := usage.DayOf(now).Month()
	you, other := u.signUp("you@example.com"), u.signUp("other@example.com")
	u.used(you.TenantID, "i1", 1, 1999*time.Millisecond, 3600*time.Second)
	u.used(you.TenantID, "i2", 2, 720*time.Second, 0)
	u.used(you.TenantID, "i3", 40, 10*time.Second, 0)
	u.used(other.TenantID, "i4", 1, time.Hour, 0)
	at := now.AddDate(0, 0, -2)
	talk := usage.New(you.TenantID, "c1", usage.Conversation, at).Used(at, usage.Counters{InputTokens: 30, OutputTokens: 20, ToolCalls: 1})
	if err := u.log.Meter().Put(t.Context(), &talk); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*fixture{u.fixture, u.another(gateway.UsersConfig{})} {
		f.as(you.APIKey, "GET", "/v1/usage", "").want(t, "usage", 200, fmt.Sprintf(
			`{"tenant_id":%q,"period":"%s..%s","infra_usage":{"cpu_seconds":4321,"sandbox_count":2,"credits_used_usd":0.07},"credits":{"balance_usd":-0.08,"auto_topup_enabled":false}}`,
			you.TenantID, first, last))
		f.as(you.APIKey, "GET", "/v1/usage/history", "").want(t, "history", 200, fmt.Sprintf(
			`{"entries":[{"period_start":%q,"period_end":%q,"infra_usage":{"cpu_seconds":720,"sandbox_count":1,"credits_used_usd":0.01},"session_count":1},`+
				`{"period_start":%q,"period_end":%q,"infra_usage":{"cpu_seconds":1,"sandbox_count":1,"credits_used_usd":0.01},"session_count":0}]}`,
			day(2), day(2), day(1), day(1)))
		f.as(you.Token, "GET", "/v1/dashboard/overview", "").want(t, "overview", 200,
			`{"sandbox_count":3,"input_tokens":30,"output_tokens":20,"cpu_seconds":4331,"billable_tool_calls":1}`)
		f.as(you.Token, "GET", "/v1/dashboard/usage/daily?from="+day(40)+"&to="+day(2), "").want(t, "daily", 200, fmt.Sprintf(
			`{"entries":[{"day":%q,"input_tokens":0,"output_tokens":0,"cpu_seconds":10},{"day":%q,"input_tokens":30,"output_tokens":20,"cpu_seconds":720}]}`, day(40), day(2)))
		f.as(you.APIKey, "GET", "/v1/usage/history?from=1000-01-01&to="+day(39), "").want(t, "long ago", 200, fmt.Sprintf(
			`{"entries":[{"period_start":%q,"period_end":%q,"infra_usage":{"cpu_seconds":10,"sandbox_count":1,"credits_used_usd":0.01},"session_count":0}]}`, day(40), day(40)))
		f.as(you.APIKey, "GET", "/v1/usage/history?from="+day(39)+"&to="+day(2), "").want(t, "without usage", 200, `{"entries":[]}`)
	}
}

// E-290, E-294, E-337 and bad input.
func TestUsageRejects(t *testing.T) {
	u := newUserFixture(t)
	you := u.signUp("you@example.com")
	today := usage.DayOf(u.clock.Now())
	for _, path := range []string{"/v1/usage", "/v1/usage/history"} {
		for _, credential := range []string{"", you.Token, you.APIKey + "0"} {
			u.as(credential, "GET", path, "").failed(t, path, 401, "unauthenticated")
		}
	}
	for _, path := range []string{"/v1/dashboard/overview", "/v1/dashboard/sandboxes", "/v1/dashboard/usage/daily?from=2026-01-01&to=2026-01-01"} {
		for _, credential := range []string{"", you.APIKey, you.Token + "0"} {
			u.as(credential, "GET", path, "").failed(t, path, 401, "unauthenticated")
		}
	}
	for _, query := range []string{
		"from=x", "to=2026-02-30", "from=", "from=2026-1-1", "from=2026-01-01T00:00:00Z", "from=2026-01-02&to=2026-01-01", "from=2026-01-01&to=2026-01-01",
		"from=2026-01-01&from=2026-01-02", "from=99999-01-01", "from=" + today.String(),
	} {
		u.as(you.APIKey, "GET", "/v1/usage/history?"+query, "").failed(t, query, 400, "invalid")
	}
	for _, query := range []string{"", "from=2026-01-01", "to=2026-01-01", "from=2026-01-02&to=2026-01-01", "from=2026-01-01&to=tomorrow"} {
		u.as(you.Token, "GET", "/v1/dashboard/usage/daily?"+query, "").failed(t, query, 400, "invalid")
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=101", "limit=x", "limit=", "limit=1&limit=2", "offset=-1", "offset=1.5", "offset=99999999999999999999"} {
		u.as(you.Token, "GET", "/v1/dashboard/sandboxes?"+query, "").failed(t, query, 400, "invalid")
	}
}

// E-336: pages of the list are disjoint and complete, the newest sandbox first.
func TestDashboardSandboxes(t *testing.T) {
	u := newUserFixture(t)
	you := u.signUp("you@example.com")
	const n = 5
	var want []string
	for i := range n {
		id := sandbox.NewID()
		_, err := u.log.AppendSandbox(t.Context(), you.TenantID, id, 0, 1, sandbox.Requested{Template: "base"}, sandbox.Placed{Host: "h", Epoch: 1}, sandbox.Running{Driver: "d"})
		if err != nil {
			t.Fatal(err)
		}
		u.used(you.TenantID, string(id), 0, time.Duration(i)*time.Second, 0)
		want = append([]string{"sbx_" + string(id)}, want...)
	}
	var got []string
	for offset := 0; offset < n+2; offset += 2 {
		var page struct {
			Sandboxes []struct {
				ID         string `json:"vm_id"`
				Template   string `json:"template"`
				Running    bool   `json:"running"`
				CPUSeconds int64  `json:"cpu_seconds"`
			} `json:"sandboxes"`
			Total int `json:"total"`
		}
		u.as(you.Token, "GET", fmt.Sprintf("/v1/dashboard/sandboxes?limit=2&offset=%d", offset), "").want(t, "page", 200, "").decode(t, &page)
		if page.Total != n {
			t.Errorf("total %d", page.Total)
		}
		for _, s := range page.Sandboxes {
			if s.Template != "base" || !s.Running || s.CPUSeconds != int64(n-1-len(got)) {
				t.Errorf("%+v", s)
			}
			got = append(got, s.ID)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// E-340, E-342, E-344, E-345, E-347, E-349: the balance is the sum of the transactions, and that of
// the usage in cents.
func TestCredits(t *testing.T) {
	u := newUserFixture(t)
	now := u.midMonth()
	you, other := u.signUp("you@example.com"), u.signUp("other@example.com")
	u.used(you.TenantID, "i1", 1, 1999*time.Millisecond, 3600*time.Second)
	u.used(you.TenantID, "i2", 2, 720*time.Second, 0)
	u.as(other.Token, "GET", "/v1/billing/balance", "").want(t, "balance of another", 200, `{"credit_balance":0}`)
	u.as(other.Token, "GET", "/v1/billing/transactions", "").want(t, "transactions of another", 200, `{"transactions":[]}`)
	u.as(you.Token, "GET", "/v1/billing/balance", "").want(t, "balance", 200, `{"credit_balance":-7}`)
	line := func(ago int, cents int) string {
		day := usage.DayOf(now.AddDate(0, 0, -ago))
		return fmt.Sprintf(`{"id":"txn_usage_%s","amount":%d,"description":"Sandbox usage","timestamp":"%sT00:00:00Z"}`, day, cents, day)
	}
	u.as(you.Token, "GET", "/v1/billing/transactions", "").want(t, "transactions", 200, `{"transactions":[`+line(0, -5)+","+line(1, -1)+","+line(2, -1)+`]}`)
	u.as(you.Token, "GET", "/v1/billing/transactions?limit=1&offset=1", "").want(t, "a page", 200, `{"transactions":[`+line(1, -1)+`]}`)
	u.as(you.Token, "GET", "/v1/billing/transactions?offset=3", "").want(t, "the end", 200, `{"transactions":[]}`)
	u.as(you.Token, "GET", "/v1/billing/transactions?limit=0", "").failed(t, "limit", 400, "invalid")
	u.as(you.Token, "GET", "/v1/billing/auto-topup", "").want(t, "auto-topup", 200, `{"enabled":false,"threshold_amount":0,"topup_amount":0}`)
	for _, amount := range []string{"0", "-500", "499", "500.5", `"500"`, "null", "true", "[500]", "1e999", "100000000", "99999999999999999999"} {
		u.as(you.Token, "POST", "/v1/billing/checkout", `{"credit_amount":`+amount+`}`).failed(t, "pay "+amount, 400, "invalid")
		u.as(you.Token, "POST", "/v1/billing/auto-topup", `{"enabled":true,"threshold_amount":100,"topup_amount":`+amount+`}`).failed(t, "top up "+amount, 400, "invalid")
	}
	for _, body := range []string{"{}", `{"enabled":1,"threshold_amount":100,"topup_amount":500}`, `{"enabled":true,"threshold_amount":-1,"topup_amount":500}`, `{"enabled":true,"topup_amount":500}`} {
		u.as(you.Token, "POST", "/v1/billing/auto-topup", body).failed(t, body, 400, "invalid")
	}
	u.as(you.Token, "POST", "/v1/billing/checkout", `{"credit_amount":500}`).failed(t, "pay", 501, "payments_unavailable")
	// E-345, E-346: the settings are stored, also on a gateway without payments.
	const settings = `{"enabled":true,"threshold_amount":100,"topup_amount":500}`
	u.as(you.Token, "POST", "/v1/billing/auto-topup", settings).want(t, "set auto-topup", 200, `{"status":"updated"}`)
	u.as(you.Token, "GET", "/v1/billing/auto-topup", "").want(t, "auto-topup", 200, settings)
	for _, path := range []string{"balance", "transactions", "auto-topup"} {
		u.as(you.APIKey, "GET", "/v1/billing/"+path, "").failed(t, path, 401, "unauthenticated")
	}
}
