package signature_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
)

const (
	accessKey = "AKIAIOSFODNN7EXAMPLE"
	secret    = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
)

func find(key string) (signature.Pair, bool) {
	if key != accessKey {
		return signature.Pair{}, false
	}
	return signature.Pair{Tenant: "alice", Secret: secret}, true
}

// golden are requests that the Python SDK signed.
func golden(t testing.TB) []signature.Request {
	t.Helper()
	raw, err := os.ReadFile("testdata/hmac_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Method        string `json:"method"`
		Target        string `json:"rel_url"`
		ContentType   string `json:"content_type"`
		Version       string `json:"version"`
		Host          string `json:"host"`
		Date          string `json:"date"`
		Authorization string `json:"authorization"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	out := make([]signature.Request, len(all))
	for i, r := range all {
		out[i] = signature.Request{
			Method: r.Method, Target: r.Target, Host: r.Host, ContentType: r.ContentType, Version: r.Version,
			Date: r.Date, Authorization: r.Authorization,
		}
	}
	return out
}

var signed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) // date of the golden requests

// B-023: signatures of the Python SDK are accepted.
func TestGoldenSignatures(t *testing.T) {
	all := golden(t)
	if len(all) != 10 {
		t.Fatalf("%d requests, want 10", len(all))
	}
	for _, r := range all {
		key, pair, err := r.Check(signed, find)
		if err != nil || key != accessKey || pair.Tenant != "alice" {
			t.Errorf("%s %s at %s: %s %+v, %v", r.Method, r.Target, r.Host, key, pair, err)
		}
	}
}

// B-023: what may differ without making the signature wrong, and what may not.
func TestCheck(t *testing.T) {
	const (
		ok     = ""
		params = signature.BadParams
		failed = signature.Failed
	)
	tests := []struct {
		name   string
		change func(r *signature.Request, now *time.Time)
		want   string // code of the error
	}{
		{"as signed", func(*signature.Request, *time.Time) {}, ok},
		{"the scheme Sorna", func(r *signature.Request, _ *time.Time) {
			r.Authorization = "Sorna" + strings.TrimPrefix(r.Authorization, "BackendAI")
		}, ok},
		{"no space after the comma", func(r *signature.Request, _ *time.Time) {
			r.Authorization = strings.Replace(r.Authorization, ", ", ",", 1)
		}, ok},
		{"absent content type", func(r *signature.Request, _ *time.Time) { r.ContentType = "" }, ok},
		{"parameters of the content type", func(r *signature.Request, _ *time.Time) { r.ContentType = "Application/Octet-Stream; charset=x" }, ok},
		{"15 minutes later", func(_ *signature.Request, now *time.Time) { *now = now.Add(15 * time.Minute) }, ok},
		{"15 minutes earlier", func(_ *signature.Request, now *time.Time) { *now = now.Add(-14 * time.Minute) }, ok},
		{"more than 15 minutes later", func(_ *signature.Request, now *time.Time) { *now = now.Add(15*time.Minute + time.Second) }, params},
		{"more than 15 minutes earlier", func(_ *signature.Request, now *time.Time) { *now = now.Add(-15 * time.Minute) }, params},
		{"no header", func(r *signature.Request, _ *time.Time) { r.Authorization = "" }, failed},
		{"another scheme", func(r *signature.Request, _ *time.Time) { r.Authorization = "Bearer x" }, params},
		{"no parameters", func(r *signature.Request, _ *time.Time) { r.Authorization = "BackendAI" }, params},
		{"no credential", func(r *signature.Request, _ *time.Time) { r.Authorization = "BackendAI signMethod=HMAC-SHA256" }, params},
		{"no method", func(r *signature.Request, _ *time.Time) { r.Authorization = "BackendAI credential=a:b" }, params},
		{"MD5", func(r *signature.Request, _ *time.Time) {
			r.Authorization = strings.Replace(r.Authorization, "SHA256", "MD5", 1)
		}, params},
		{"two credentials", func(r *signature.Request, _ *time.Time) { r.Authorization += ", credential=a:b" }, params},
		{"another hash", func(r *signature.Request, _ *time.Time) {
			r.Authorization = strings.Replace(r.Authorization, "SHA256", "SHA512", 1)
		}, failed},
		{"8 KiB", func(r *signature.Request, _ *time.Time) { r.Authorization += strings.Repeat("0", 8<<10) }, failed},
		{"an unknown key", func(r *signature.Request, _ *time.Time) {
			r.Authorization = strings.Replace(r.Authorization, accessKey, "AKIA", 1)
		}, failed},
		{"another method", func(r *signature.Request, _ *time.Time) { r.Method = "POST" }, failed},
		{"another query", func(r *signature.Request, _ *time.Time) { r.Target += "&" }, failed},
		{"another host", func(r *signature.Request, _ *time.Time) { r.Host = "localhost:8080" }, failed},
		{"another version", func(r *signature.Request, _ *time.Time) { r.Version = "v5.20191215" }, failed},
		{"another content type", func(r *signature.Request, _ *time.Time) { r.ContentType = "text/plain" }, failed},
		{"the date in another form", func(r *signature.Request, _ *time.Time) { r.Date = "2026-01-02T03:04:05.678901Z" }, failed},
		{"no date", func(r *signature.Request, _ *time.Time) { r.Date = "" }, params},
		{"a date in year 0", func(r *signature.Request, _ *time.Time) { r.Date = "0000-01-02T03:04:05Z" }, params},
		{"a date in year 9999", func(r *signature.Request, _ *time.Time) { r.Date = "9999-12-31T23:59:59Z" }, params},
		{"not a date", func(r *signature.Request, _ *time.Time) { r.Date = "yesterday" }, params},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, now := golden(t)[4], signed
			tt.change(&r, &now)
			_, pair, err := r.Check(now, find)
			if (err == nil) != (tt.want == ok) || err != nil && kind.Code(err) != tt.want || (pair.Tenant == "alice") != (err == nil) {
				t.Errorf("%+v, %v; want %q", pair, err, tt.want)
			}
		})
	}
}

// Dates of all clients name the same moment, and the day of the signature is that of their zone.
func TestParseDate(t *testing.T) {
	want := time.Date(2026, 11, 21, 0, 12, 28, 0, time.UTC)
	for text, day := range map[string]string{
		"2026-11-21T00:12:28.796658+00:00": "20261121", // Python SDK
		"2026-11-21T00:12:28.796Z":         "20261121", // npm client
		"2026-11-21T09:12:28+09:00":        "20261121",
		"2026-11-20T16:12:28-0800":         "20261120",
		"2026-11-21T00:12:28":              "20261121",
		"2026-11-21 00:12:28.5":            "20261121",
		"20261121T001228Z":                 "20261121",
		"Sat, 21 Nov 2026 00:12:28 GMT":    "20261121",
		"Sat, 21 Nov 2026 02:12:28 +0200":  "20261121",
		"Saturday, 21-Nov-26 00:12:28 GMT": "20261121",
		"Sat Nov 21 00:12:28 2026":         "20261121",
	} {
		got, err := signature.ParseDate(text)
		if err != nil || !got.Truncate(time.Second).Equal(want) || got.Format("20060102") != day {
			t.Errorf("%q: %v on %s, %v", text, got, got.Format("20060102"), err)
		}
	}
	for _, text := range []string{"", "2026", "Sat, 21 Nov 2026 00:12:28 CEST", "1763683948", "2026-11-21T00:12:28+25:61"} {
		if got, err := signature.ParseDate(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// No request that differs from the signed one in a byte is accepted.
func TestMutationsAreRejected(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := golden(t)
	codes := map[string]int{}
	for range 100_000 {
		r := all[rng.IntN(len(all))]
		want := r
		fields := []*string{&r.Method, &r.Target, &r.Host, &r.ContentType, &r.Version, &r.Date, &r.Authorization}
		f := fields[rng.IntN(len(fields))]
		*f = mutate(rng, *f)
		_, pair, err := r.Check(signed, find)
		code := kind.Code(err)
		codes[code]++
		if err == nil && (pair.Tenant != "alice" || !same(&r, &want)) {
			t.Fatalf("accepted %+v", r)
		}
		if err != nil && !(code == signature.Failed && kind.Is(err, kind.Unauthenticated) || code == signature.BadParams && kind.Is(err, kind.Invalid)) {
			t.Fatalf("%+v: %v with code %q", r, err, code)
		}
	}
	if codes[signature.Failed] == 0 || codes[signature.BadParams] == 0 {
		t.Errorf("codes %v", codes)
	}
}

// same reports whether two requests differ only in what is not signed.
func same(a, b *signature.Request) bool {
	trim := strings.NewReplacer(" ", "", "\t", "")
	return a.Method == b.Method && a.Target == b.Target && a.Host == b.Host && a.Version == b.Version && a.Date == b.Date &&
		strings.EqualFold(strings.TrimSpace(strings.Split(a.ContentType, ";")[0]), b.ContentType) &&
		trim.Replace(a.Authorization) == trim.Replace(b.Authorization)
}

func mutate(rng *rand.Rand, s string) string {
	b := []byte(s)
	i := rng.IntN(len(b))
	switch rng.IntN(4) {
	case 0:
		b[i] ^= 1 << rng.IntN(8)
	case 1:
		return string(b[:i]) + string(b[i+1:])
	case 2:
		return string(b[:i]) + string(rune('!'+rng.IntN(90))) + string(b[i:])
	default:
		j := rng.IntN(len(b))
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// A parsed header contains nothing that its text does not.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"BackendAI signMethod=HMAC-SHA256, credential=a:b", "Sorna credential=a:b,signMethod=HMAC-SHA512",
		"BackendAI", " ", ",", "BackendAI =,=", "BackendAI credential=:,signMethod=", "BackendAI a=b\r\n c=d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := signature.Parse(s)
		if err != nil {
			if kind.Code(err) != signature.BadParams {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if c.AccessKey == "" || c.Signature == "" || strings.Contains(c.AccessKey, ":") || !strings.Contains(s, c.AccessKey+":"+c.Signature) {
			t.Fatalf("%q: %+v", s, c)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	r := golden(b)[0]
	for b.Loop() {
		if _, _, err := r.Check(signed, find); err != nil {
			b.Fatal(err)
		}
	}
}
