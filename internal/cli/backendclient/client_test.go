package backendclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fasthttp/websocket"
)

func TestRequestsAreSigned(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "BackendAI signMethod=HMAC-SHA256, credential=access:") || r.Header.Get("X-BackendAI-Version") == "" {
			t.Errorf("headers %v", r.Header)
		}
		w.Write([]byte(`{"a":1}`))
	}))
	defer srv.Close()
	c, err := New(srv.URL, "access", "secret")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ A int }
	if err := c.Do(t.Context(), "POST", "/session", map[string]string{}, &got); err != nil || got.A != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOutputOfATerminal(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		for _, m := range []string{`{"type":"out","data":"aGk="}`, `{"data":"aGk=","type":"out"}`, `{"type":"error","data":"no"}`} {
			ws.WriteMessage(websocket.TextMessage, []byte(m))
		}
		ws.ReadMessage()
	}))
	defer srv.Close()
	c, err := New(srv.URL, "access", "secret")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(context.Background(), "/stream/session/x/pty")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if got, err := conn.Output(); string(got) != "hi" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if _, err := conn.Output(); err == nil {
		t.Error("an error of the terminal is taken for output")
	}
}
