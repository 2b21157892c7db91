package gateway_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A session has one name at a time, at any gateway, and its old name is free.
func TestBackendAIRename(t *testing.T) {
	f, g := twoGateways(t)
	one, two, bob := f.signer(), g.signer(), f.signer()
	bob.key = bobPairKey
	body := func(name string) string { return `{"image":"base","name":"` + name + `"}` }
	a := one.create("/session", body("first"), 201)
	b := two.create("/session", body("other"), 201)
	bob.create("/session", body("taken-by-bob"), 201)
	l := two.listen("/events/session?scope=session&name=taken-by-bob", "")
	two.do("POST", "/session/first/rename?name=other", "").problem(t, "a name that is used", 400, "session-already-exists")
	for _, name := range []string{"", "abc", "a*cd", "a%3Ecd", "../../x", "abcd."} {
		one.do("POST", "/session/first/rename?name="+name, "").problem(t, "name "+name, 400, "invalid-api-params")
	}
	one.do("POST", "/kernel/none/rename?name=fine", "").problem(t, "an unknown session", 404, "object-not-found")
	for _, name := range []string{"second", "third", "second", "taken-by-bob"} {
		two.do("POST", "/session/"+a.SessionID+"/rename?name="+name, "").want(t, "rename", 204, "")
		two.do("POST", "/session/"+name+"/rename?name="+name, "").want(t, "rename to its own name", 204, "")
		again := one.create("/session", body(name), 200)
		if again.SessionID != a.SessionID || again.SessionName != name {
			t.Errorf("%s is %+v", name, again)
		}
	}
	for _, name := range []string{"first", "second", "third"} {
		one.do("GET", "/session/"+name, "").problem(t, "an old name", 404, "object-not-found")
		if c := two.create("/session", body(name), 201); c.SessionID == a.SessionID || c.SessionID == b.SessionID {
			t.Errorf("a new session with an old name: %+v", c)
		}
	}
	two.do("DELETE", "/session/taken-by-bob", "").want(t, "DELETE", 200, "")
	for _, e := range l.until("session_terminated") {
		if e.data.SessionName != "taken-by-bob" || e.data.SessionID != a.SessionID {
			t.Errorf("%s: %s", e.name, e.raw)
		}
	}
	if c := one.create("/session", body("taken-by-bob"), 201); c.SessionID == a.SessionID {
		t.Errorf("after the end: %+v", c)
	}
}

// Concurrent renames and creates of one name at two gateways give it to one session.
func TestBackendAIRenameRace(t *testing.T) {
	f, g := twoGateways(t)
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = f.signer().create("/session", fmt.Sprintf(`{"image":"base","name":"from-%d"}`, i), 201).SessionID
	}
	codes := make([]int, 2*len(ids))
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			s := []*signer{f.signer(), g.signer()}[i%2]
			if i < len(ids) {
				codes[i] = s.do("POST", "/session/"+ids[i]+"/rename?name=only-one", "").code
				return
			}
			codes[i] = s.do("POST", "/session", `{"image":"base","name":"only-one","reuseIfExists":false}`).code
		})
	}
	wg.Wait()
	won := 0
	for i, code := range codes {
		if want := []int{204, 201}[i/len(ids)]; code == want {
			won++
		} else if code != 400 {
			t.Errorf("request %d: %d", i, code)
		}
	}
	if won != 1 {
		t.Errorf("%d requests have the name: %v", won, codes)
	}
}

// B-034: the requests of a key count at all gateways, and every answer has the headers.
func TestBackendAIRateAcrossGateways(t *testing.T) {
	f, g := twoGateways(t)
	left := func(s *signer) int {
		t.Helper()
		a := s.do("GET", "/session/nothing", "")
		n, err := strconv.Atoi(a.header.Get("X-RateLimit-Remaining"))
		if err != nil {
			t.Fatal(a.header)
		}
		return n
	}
	one, two := f.signer(), g.signer()
	begin := left(one)
	for range 4 {
		left(one)
	}
	sent := 0
	for late, poll := time.After(time.Minute), time.NewTicker(20*time.Millisecond); ; {
		sent++
		if got := left(two); got <= begin-4-sent {
			poll.Stop()
			break
		}
		select {
		case <-poll.C:
		case <-late:
			t.Fatalf("another gateway does not count the requests: %d left", left(two))
		}
	}
	for path, code := range map[string]int{"/": 200, "/v5": 200, "/session/a%2fb": 400, "/session/a%00b": 400, "/kernel/x": 401, "/events/x": 401} {
		resp, err := http.Get("http://" + f.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		for _, h := range []string{"Limit", "Remaining", "Window"} {
			if n, err := strconv.Atoi(resp.Header.Get("X-RateLimit-" + h)); err != nil || n <= 0 || resp.StatusCode != code {
				t.Errorf("%s: %d, want %d, %s is %q", path, resp.StatusCode, code, h, resp.Header.Get("X-RateLimit-"+h))
			}
		}
	}
}
