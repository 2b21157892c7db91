package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// A link that one gateway made is read at another one after the sandbox, its host and the first gateway have
// gone, and it shows nothing else.
func TestShareOutlivesItsMakers(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2})
	maker, other := s.APIs[0], s.APIs[1]
	box := maker.Create(t).ID
	terminal := func(text string) (string, *rig.Lines) {
		lines := maker.Commands(t, box, "echo "+text+"-$((40+2)); cat", "pty", map[string]int{"cols": 80, "rows": 24}, "timeout_ms", 0)
		id := lines.Must(t).Process
		lines.Until(t, func(l *rig.Line) bool { return strings.Contains(string(l.Bytes()), text+"-42") })
		return id, lines
	}
	id, lines := terminal("shared")
	secret, _ := terminal("secret")
	path := "/v1/processes/" + id

	var link struct{ ID, Token string }
	must(t, json.Unmarshal(maker.Want(t, http.StatusCreated, http.MethodPost, "/v1/shares", map[string]string{"process": id}).Body, &link))
	onlooker := &rig.API{URL: other.URL}
	header := []string{"Millrace-Share", link.Token}
	live := onlooker.Events(t, id, "follow=1", header...)
	live.Until(t, func(l *rig.Line) bool { return strings.Contains(string(l.Bytes()), "shared-42") })

	maker.Kill(t, box)
	lines.All(t)
	s.Program("host-1").Kill9()
	s.Program("gateway-1").Kill9()
	if got, want := rig.End(t, live.All(t)), rig.End(t, other.Events(t, id, "").All(t)); got.Raw != want.Raw {
		t.Errorf("the open stream ended with %s, want %s", got.Raw, want.Raw)
	}
	for _, route := range []string{"/events", "/screen", "/timeline", "/search?q=shared-42", "/export.cast"} {
		want := other.Want(t, http.StatusOK, http.MethodGet, path+route, nil)
		got := onlooker.Want(t, http.StatusOK, http.MethodGet, path+route, nil, header...)
		if string(got.Body) != string(want.Body) || len(got.Body) == 0 {
			t.Errorf("%s with the link: %s, want %s", route, got, want)
		}
	}
	if screen := onlooker.Do(t, http.MethodGet, path+"/screen", nil, header...); !strings.Contains(string(screen.Body), "shared-42") {
		t.Errorf("screen: %s", screen)
	}
	onlooker.Want(t, http.StatusNotFound, http.MethodGet, "/v1/processes/"+secret+"/screen", nil, header...)
	onlooker.Want(t, http.StatusUnauthorized, http.MethodGet, path+"/screen", nil)

	other.Want(t, http.StatusNoContent, http.MethodDelete, "/v1/shares/"+link.ID, nil)
	onlooker.Want(t, http.StatusUnauthorized, http.MethodGet, path+"/screen", nil, header...)

	// A host that starts ends the sandboxes that it had prepared before.
	must(t, s.RestartProgram("host-1"))
	other.Kill(t, other.Create(t).ID)
}
