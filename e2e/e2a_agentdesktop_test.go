package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// lookingModel is a model that takes a screenshot, and answers when it has one.
func lookingModel(t *testing.T, shown chan<- []byte) *httptest.Server {
	t.Helper()
	image := regexp.MustCompile(`"media_type":"image/png","data":"([^"]+)"`)
	m := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := `{"type":"message","content":[{"type":"tool_use","id":"c1","name":"screenshot","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":3}}`
		if got := image.FindSubmatch(body); got != nil {
			raw, err := base64.StdEncoding.DecodeString(string(got[1]))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			shown <- raw
			answer = `{"type":"message","content":[{"type":"text","text":"I see it."}],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":3}}`
		}
		io.WriteString(w, answer)
	}))
	t.Cleanup(m.Close)
	return m
}

// looks has the agent of a session take a screenshot: the client gets it as one binary message, and the model as a
// picture (E-203, E-222).
func looks(t *testing.T, a *rig.API) {
	t.Helper()
	shown := make(chan []byte, 1)
	at, err := url.Parse(lookingModel(t, shown).URL)
	must(t, err)
	a.Want(t, 201, "POST", secretsPath, map[string]any{"name": "looks", "values": map[string]any{"LLM_API_KEY": "k", "ANTHROPIC_BASE_URL": fmt.Sprint("http://example.com:", at.Port())}}, bearer(a)...)
	c := converse(t, a, "/v1/sessions", `{"template":"cua","llm":{"vendor":"anthropic"},"user_id":"you","secrets":["looks"]}`, 201)
	k := talkTo(t, a, &c, "")
	k.run("xsetroot -solid '#12ab34'")
	k.showsPixels()
	k.tell(`{"type":"prompt","text":"look"}`)
	var captured [][]byte
	var calls []string
	for {
		k.ws.SetReadDeadline(time.Now().Add(time.Minute))
		typ, raw, err := k.message()
		must(t, err)
		if typ == websocket.BinaryMessage {
			captured = append(captured, bytes.Clone(raw))
			continue
		}
		var f agentFrame
		must(t, json.Unmarshal(raw, &f))
		if f.Type == "tool_call" {
			calls = append(calls, f.Name)
		}
		if f.Type == "turn_end" {
			if f.Status != "completed" || len(captured) != 1 || len(calls) != 1 {
				t.Fatalf("%+v, calls %q, %d binary messages", f, calls, len(captured))
			}
			break
		}
	}
	background := color.RGBA{0x12, 0xab, 0x34, 0xff}
	if n := plain(t, captured[0], background); n < 1920*1000 {
		t.Errorf("%d pixels of the screenshot have the color of the root window", n)
	}
	img, err := png.Decode(bytes.NewReader(<-shown))
	must(t, err)
	n := 0
	for y := range 720 {
		for x := range 1280 {
			if color.RGBAModel.Convert(img.At(x, y)) == background {
				n++
			}
		}
	}
	if n < 1280*660 || img.Bounds().Dx() != 1280 || img.Bounds().Dy() != 720 {
		t.Errorf("the model sees %v, with %d pixels of the color of the root window", img.Bounds(), n)
	}
	k.ws.Close()
	a.Want(t, http.StatusOK, "DELETE", "/v1/sandboxes/"+c.VM, nil, bearer(a)...)
}
