package gateway_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/gateway"
)

// terminal starts a process with a terminal that runs until the sandbox ends.
func (s *sharing) terminal() string {
	s.t.Helper()
	return s.start(`{"cmd":"cat","pty":{"cols":80,"rows":24},"timeout_ms":0}`)
}

type lease struct {
	Lease, Name, Asked string
	Held, Writes       bool
}

// One client types at a time, at any gateway, and hands the lease over; it ends with its gateway.
func TestOneWriterAtATime(t *testing.T) {
	s := newSharing(t)
	path := "/v1/processes/" + s.terminal()
	at := func(addr, method, route, body, id string) answer {
		s.addr = addr
		return s.do(method, path+route, body, "Millrace-Writer", id)
	}
	var ann, bob, seen lease
	at(s.first, "POST", "/input", "x", "").want(t, "input without a lease", 409, "")
	at(s.first, "POST", "/writer", `{"name":"Ann"}`, "").want(t, "take", 200, "").decode(t, &ann)
	if !ann.Writes || ann.Lease == "" {
		t.Errorf("take: %+v", ann)
	}
	at(s.second, "POST", "/input", "x", ann.Lease).want(t, "input at another gateway", 204, "")
	at(s.second, "POST", "/size", `{"cols":100,"rows":30}`, ann.Lease).want(t, "size", 204, "")
	const taken = `{"code":409,"message":"\"Ann\" has the writer's lease","error_code":"conflict"}`
	at(s.second, "POST", "/writer", `{"name":"Bob"}`, "").want(t, "take a lease of another client", 409, taken)
	at(s.second, "POST", "/writer", `{"name":"Bob","ask":true}`, "").want(t, "ask", 200, "").decode(t, &bob)
	for route, body := range map[string]string{"/input": "x", "/size": `{"cols":1,"rows":1}`} {
		at(s.second, "POST", route, body, bob.Lease).want(t, route+" by a client that waits", 409, taken)
	}
	shown := at(s.first, "GET", "/writer", "", "").want(t, "get", 200, "")
	if shown.decode(t, &seen); !seen.Held || seen.Name != "Ann" || seen.Asked != "Bob" || strings.Contains(shown.body, "lease") {
		t.Errorf("get: %s", shown.body)
	}
	at(s.first, "POST", "/writer", `{"hand_over":true}`, bob.Lease).want(t, "a hand-over by another client", 409, "")
	at(s.first, "POST", "/writer", `{"hand_over":true}`, ann.Lease).want(t, "hand over", 200, "")
	at(s.first, "POST", "/input", "x", ann.Lease).want(t, "input after the hand-over", 409, `{"code":409,"message":"\"Bob\" has the writer's lease","error_code":"conflict"}`)
	at(s.first, "POST", "/input", "x", bob.Lease).want(t, "input of the new writer", 204, "")
	at(s.second, "GET", "/writer", "", "").decode(t, &seen)
	if seen.Name != "Bob" {
		t.Errorf("get: %+v", seen)
	}
	at(s.second, "DELETE", "/writer", "", ann.Lease).want(t, "a release by another client", 409, "")
	at(s.second, "DELETE", "/writer", "", bob.Lease).want(t, "release", 204, "")
	at(s.second, "POST", "/writer", `{"name":"Ann"}`, ann.Lease).want(t, "take the free lease", 200, "")

	// The lease was stored by the second gateway, which stops.
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && at(s.first, "POST", "/writer", `{"name":"Bob"}`, bob.Lease).code != 200 {
		<-tick.C
	}
	at(s.first, "POST", "/input", "x", ann.Lease).want(t, "input after the gateway has gone", 409, `{"code":409,"message":"\"Bob\" has the writer's lease","error_code":"conflict"}`)
	s.serve(gateway.Config{Listen: "127.0.0.1:0"})
	at(s.addr, "POST", "/input", "x", bob.Lease).want(t, "input at a new gateway", 204, "")
}

func TestWritersRejectBadInput(t *testing.T) {
	s := newSharing(t)
	path := "/v1/processes/" + s.terminal()
	for body, want := range map[string]int{
		`{`: 400, `{"name":"` + strings.Repeat("x", 65) + `"}`: 400, `{"name":"a\nb"}`: 400, `{"name":"\u202e"}`: 400, `{"hand_over":true}`: 409,
	} {
		s.do("POST", path+"/writer", body).wantError(t, body, want)
	}
	s.do("POST", path+"/writer", "", "Millrace-Writer", "a.*").wantError(t, "an invalid lease", 400)
	s.do("POST", "/v1/processes/"+s.process+"/writer", "").wantError(t, "a process without a terminal", 400)
	s.do("POST", path+"/writer", "", "X-Api-Key", bobKey).wantError(t, "another tenant", 404)
	token := s.share(`{"sandbox":"` + s.box.ID + `"}`).Token
	for _, route := range []string{"/writer", "/input", "/size"} {
		s.look("POST", path+route, token).wantError(t, "a link: "+route, 401)
	}
}
