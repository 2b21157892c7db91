package account

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
)

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]Address{
		"you@example.com":                        "you@example.com",
		"You+Tag@Example.COM":                    "you+tag@example.com",
		"a.b@x-y.example":                        "a.b@x-y.example",
		"":                                       "",
		"you":                                    "",
		"@example.com":                           "",
		"you@":                                   "",
		"you@localhost":                          "",
		"you@127.0.0.1":                          "",
		"you@[127.0.0.1]":                        "",
		"you@example..com":                       "",
		"you@-example.com":                       "",
		"you@example.com.":                       "",
		".you@example.com":                       "",
		"y..u@example.com":                       "",
		"you@a@example.com":                      "",
		`"you"@example.com`:                      "",
		"You <you@example.com>":                  "",
		"you@example.com,me@example.com":         "",
		"you@example.com\r\nBcc: a@example.com":  "",
		"you\x00@example.com":                    "",
		" you@example.com":                       "",
		"yöu@example.com":                        "",
		"you@exämple.com":                        "",
		strings.Repeat("a", 65) + "@b.com":       "",
		"a@" + strings.Repeat("b.", 127) + "com": "",
	} {
		got, err := ParseAddress(s)
		if got != want || (err == nil) != (want != "") || err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("ParseAddress(%q) = %q, %v; want %q", s, got, err, want)
		}
	}
}

// An accepted address is one line of printable ASCII that a mail can be sent to.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"you@example.com", "a@b@c", "\"x\"@y.z", "x@y.z\r\n", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if strings.Count(string(a), "@") != 1 || strings.ContainsAny(string(a), " ,;:<>()[]\\\"\r\n\t\x00") || len(a) > maxAddress || strings.ToLower(s) != string(a) {
			t.Errorf("%q = %q", s, a)
		}
		if again, err := ParseAddress(string(a)); again != a || err != nil {
			t.Errorf("%q again: %q, %v", a, again, err)
		}
	})
}

func at(s int) time.Time { return time.Unix(1_000_000+int64(s), 0) }

func TestAdmit(t *testing.T) {
	var times []time.Time
	for i, tt := range []struct {
		at   int
		wait time.Duration
	}{{0, 0}, {10, 0}, {20, 0}, {30, 30 * time.Second}, {59, time.Second}, {60, 0}, {61, 9 * time.Second}, {70, 0}, {500, 0}} {
		left, wait := Admit(times, at(tt.at), 3, time.Minute)
		if wait != tt.wait || len(left) > 3 {
			t.Errorf("request %d: wait %v with %d times, want %v", i, wait, len(left), tt.wait)
		}
		times = left
	}
	if len(times) != 1 {
		t.Errorf("%d times are left", len(times))
	}
}

func TestSources(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.1": "c0000201", "::ffff:192.0.2.1": "c0000201", "192.0.2.2": "c0000202",
		"2001:db8::1": "20010db800000000", "2001:db8::ffff:1": "20010db800000000", "2001:db8:0:1::1": "20010db800000001", "fe80::1%eth0": "fe80000000000000",
	} {
		if got := SourceOf(netip.MustParseAddr(a)); got != want {
			t.Errorf("SourceOf(%s) = %s, want %s", a, got, want)
		}
	}
	if got := SourceOf(netip.Addr{}); got != "none" {
		t.Errorf("no address: %s", got)
	}
}

func requested(second int) Requested {
	return Requested{Address: "a@b.com", Code: Code{Nonce: at(second).String(), Hash: "h", Sent: at(second)}}
}

// Every event in every phase: a pair that is absent from the table cannot happen.
func TestApply(t *testing.T) {
	idle := State{Address: "a@b.com"}
	waiting, err := idle.Apply(requested(0))
	if err != nil {
		t.Fatal(err)
	}
	last := waiting
	last.Code.Wrong = MaxWrong - 1
	for _, tt := range []struct {
		name  string
		from  State
		body  Body
		ok    bool
		phase Phase
	}{
		{"a code", idle, requested(1), true, Waiting},
		{"another code", waiting, requested(1), true, Waiting},
		{"a failed mail", waiting, Undelivered{waiting.Code.Nonce}, true, Idle},
		{"a failed mail of an older code", waiting, Undelivered{"other"}, false, Waiting},
		{"a failed mail without a code", idle, Undelivered{}, false, Idle},
		{"a wrong code", waiting, Missed{}, true, Waiting},
		{"the last wrong code", last, Missed{}, true, Idle},
		{"a wrong code without a code", idle, Missed{}, false, Idle},
		{"the right code", waiting, Verified{Tenant: "t", At: at(2)}, true, Idle},
		{"the right code without a code", idle, Verified{Tenant: "t"}, false, Idle},
	} {
		got, err := tt.from.Apply(tt.body)
		if (err == nil) != tt.ok || got.Phase() != tt.phase {
			t.Errorf("%s: phase %d, %v; want %d, ok %v", tt.name, got.Phase(), err, tt.phase, tt.ok)
		}
	}
}

// An account keeps its tenant, and its codes count for an hour unless they were not sent.
func TestAnAccountOverTime(t *testing.T) {
	var s State
	apply := func(b Body) {
		t.Helper()
		next, err := s.Apply(b)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	for i := range MaxCodes {
		if w := s.Wait(at(i)); w != 0 {
			t.Fatalf("code %d waits %v", i, w)
		}
		apply(requested(i))
	}
	if w := s.Wait(at(10)); w != CodePeriod-10*time.Second {
		t.Errorf("the next code waits %v", w)
	}
	apply(Undelivered{s.Code.Nonce})
	if w := s.Wait(at(10)); w != 0 {
		t.Errorf("after a failed mail the next code waits %v", w)
	}
	apply(requested(20))
	if !s.Live(at(20+599)) || s.Live(at(20+600)) {
		t.Error("a code is not valid for ten minutes")
	}
	apply(Verified{Tenant: "one", At: at(30)})
	apply(requested(4000))
	apply(Verified{Tenant: "two", At: at(4001)})
	if s.Tenant != "one" || !s.Created.Equal(at(30)) || s.Live(at(4002)) || len(s.Sent) != 1 {
		t.Errorf("%+v", s)
	}
	if s.Abandoned(at(1e6)) || !(&State{Sent: []time.Time{at(0)}}).Abandoned(at(3600)) || (&State{Sent: []time.Time{at(0)}}).Abandoned(at(3599)) {
		t.Error("what is forgotten")
	}
}
