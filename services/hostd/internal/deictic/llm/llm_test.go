package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func collect(r io.Reader) (all []string, err error) {
	for data, e := range Events(r) {
		if e != nil {
			return all, e
		}
		all = append(all, string(data))
	}
	return all, nil
}

func TestEventsOfEveryLineEndAreDecoded(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"LF", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"several lines", "data: a\ndata:b\n\n", []string{"a\nb"}},
		{"comments and other fields", ": ping\nevent: x\nid: 1\ndata: a\n\n: ping\n\n", []string{"a"}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"a"}},
		{"an event that is cut off", "data: a\n\ndata: b\n", []string{"a"}},
		{"a line that is cut off", "data: a\n\ndata: b", []string{"a"}},
		{"data without a value", "data\n\n", []string{""}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				if got, err := collect(r); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", tt.want) || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

func TestLargeEventsAreRefused(t *testing.T) {
	for _, in := range []string{"data: " + strings.Repeat("x", maxEvent+1), strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 5)} {
		if _, err := collect(strings.NewReader(in)); !errors.Is(err, errEventSize) {
			t.Errorf("got %v", err)
		}
	}
}

// FuzzEvents holds that the sizes of reads do not matter and that no data has an end of a line that the
// stream did not have.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n:\ndata\rdata: b\n\n"))
	f.Add([]byte("\xef\xbb\xbfdata:\n\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, aerr := collect(strings.NewReader(string(in)))
		b, berr := collect(iotest.OneByteReader(strings.NewReader(string(in))))
		if fmt.Sprintf("%q", a) != fmt.Sprintf("%q", b) || (aerr == nil) != (berr == nil) {
			t.Errorf("%q, %v; byte by byte %q, %v", a, aerr, b, berr)
		}
	})
}

// FuzzAnswers holds that a decoded answer can be sent back: its calls have ids and objects as arguments.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"delta":{"content":"a","tool_calls":[{"index":0,"id":"x","function":{"name":"n","arguments":"{"}}]},"finish_reason":"stop"}]}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"x","name":"n","input":{}}}` + "\n" + `{"type":"message_stop"}`,
		`{"type":"error"}`, `[DONE]`, `null`, `{"error":{}}`, `{"choices":[{"delta":{"tool_calls":[{"index":-1},{"index":9}]}}]}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, format := range []format{chat{}, messages{}} {
			d := format.decoder(nil)
			var err error
			for line := range strings.Lines(in) {
				if err = d.event([]byte(strings.TrimSuffix(line, "\n"))); err != nil {
					break
				}
			}
			a, endErr := d.end()
			if err != nil || endErr != nil {
				continue
			}
			for _, c := range a.Message.Calls {
				if c.ID == "" || !json.Valid(c.Args) || c.Args[0] != '{' {
					t.Errorf("call %+v", c)
				}
			}
			if _, err := json.Marshal(format.encode(&Endpoint{}, &Request{Messages: []Message{a.Message}})); err != nil {
				t.Error(err)
			}
		}
	})
}

const done = `data: {"choices":[{"delta":{"content":"done"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"

// client returns a client of an endpoint over TLS that answers the n-th request by the n-th function, and the
// pauses between attempts.
func client(t *testing.T, vendor Vendor, answers ...http.HandlerFunc) (c *Client, pauses *[]time.Duration, asked *int) {
	t.Helper()
	pauses, asked = new([]time.Duration), new(int)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		n := min(*asked, len(answers)-1)
		*asked++
		answers[n](w, r)
	}))
	t.Cleanup(s.Close)
	h := s.Client()
	h.CheckRedirect = NewHTTP(nil).CheckRedirect
	return &Client{
		HTTP:     h,
		Endpoint: func() (Endpoint, error) { return NewEndpoint(string(vendor), "m", s.URL+"/v1", "sk-canary") },
		Wait:     func(_ context.Context, d time.Duration) error { *pauses = append(*pauses, d); return nil },
	}, pauses, asked
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

func status(code int, text string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		io.WriteString(w, text)
	}
}

// half sends the beginning of an answer and closes the connection.
func half(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100000")
	io.WriteString(w, `data: {"choices":[{"delta":{"content":"do"}}]}`+"\n\ndata: {\"cho")
}

func TestFailuresThatMayPassAreRepeated(t *testing.T) {
	tests := []struct {
		name    string
		first   http.HandlerFunc
		asked   int           // number of requests
		atLeast time.Duration // of the first pause
		cause   string        // of the error; empty: the second answer is complete
	}{
		{"429 with seconds", status(429, "", "Retry-After", "7"), 2, 7 * time.Second, ""},
		{"429 with a date", status(429, "", "Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)), 2, 50 * time.Second, ""},
		{"429 with a bad value", status(429, "", "Retry-After", "soon"), 2, time.Second, ""},
		{"429 with too long a time", status(429, "slow down", "Retry-After", "3600"), 1, 0, "slow down"},
		{"500", status(500, "oops"), 2, time.Second, ""},
		{"529", status(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), 2, time.Second, ""},
		{"cut in half", half, 2, time.Second, ""},
		{"without an end", body(`data: {"choices":[{"delta":{"content":"do"}}]}` + "\n\n"), 2, time.Second, ""},
		{"not JSON", body("data: <html>\n\n"), 2, time.Second, ""},
		{"not a stream", body("<html>hello</html>"), 2, time.Second, ""},
		{"an error within the answer", body(`data: {"error":{"type":"server_error","message":"sorry"}}` + "\n\n"), 2, time.Second, ""},
		{"400", status(400, `{"error":{"type":"invalid_request_error","message":"the key sk-canary is bad"}}`), 1, 0, "400: invalid_request_error the key [key] is bad"},
		{"401", status(401, "no"), 1, 0, "401"},
		{"a redirect", status(302, "", "Location", "/elsewhere"), 1, 0, "302"},
		{"too much text", endless(`{"choices":[{"delta":{"content":"`+strings.Repeat("x", 10<<10)+`"}}]}`, 200), 1, 0, errAnswerSize.Error()},
		{"too many calls", endless(`{"choices":[{"delta":{"tool_calls":[{"id":"%d","function":{"name":"n","arguments":"{}"}}]}}]}`, 300), 1, 0, errCalls.Error()},
		{"a large event", body("data: " + strings.Repeat("x", maxEvent+1) + "\n\n"), 1, 0, errEventSize.Error()},
		{"100 MiB of comments", func(w http.ResponseWriter, _ *http.Request) {
			for line := []byte(": " + strings.Repeat("x", 1<<16) + "\n"); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, 1, 0, errStreamSize.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, pauses, asked := client(t, OpenAI, tt.first, body(done))
			a, err := c.Send(t.Context(), &Request{Messages: []Message{{Role: User, Text: "hi"}}})
			if tt.cause != "" {
				if err == nil || !strings.Contains(err.Error(), tt.cause) || strings.Contains(err.Error(), "canary") {
					t.Errorf("got %v", err)
				}
			} else if err != nil || a.Message.Text != "done" {
				t.Errorf("got %+v, %v", a, err)
			}
			if *asked != tt.asked || tt.asked == 2 && (*pauses)[0] < tt.atLeast {
				t.Errorf("%d requests, pauses %v", *asked, *pauses)
			}
		})
	}
}

// endless repeats an event n times, with its number if it has a verb.
func endless(event string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := range n {
			text := event
			if strings.Contains(event, "%d") {
				text = fmt.Sprintf(event, i)
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
				return
			}
		}
	}
}

func TestAttemptsAreLimited(t *testing.T) {
	c, pauses, asked := client(t, Anthropic, status(503, "busy"))
	_, err := c.Send(t.Context(), &Request{})
	var e *Error
	if !errors.As(err, &e) || e.Status != 503 || *asked != attempts || len(*pauses) != attempts-1 {
		t.Errorf("%d requests: %v", *asked, err)
	}
}

func TestASilentEndpointIsLeft(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	hang := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}
	c, _, asked := client(t, OpenAI, hang, body(done))
	c.Silence = 50 * time.Millisecond
	if a, err := c.Send(t.Context(), &Request{}); err != nil || a.Message.Text != "done" || *asked != 2 {
		t.Errorf("got %+v, %v after %d requests", a, err, *asked)
	}
}

// An answer of 100 MiB must not be in memory.
func TestLargeAnswersTakeLittleMemory(t *testing.T) {
	c, _, _ := client(t, OpenAI, endless(`{"x":"`+strings.Repeat("x", 100<<10)+`"}`, 1000))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if _, err := c.Send(t.Context(), &Request{}); err == nil {
		t.Error("the answer was accepted")
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 24<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func TestEndpoints(t *testing.T) {
	tests := []struct{ vendor, model, base, url, err string }{
		{"anthropic", "", "", "https://api.anthropic.com/v1/messages", ""},
		{"anthropic", "", "https://p.example", "https://p.example/v1/messages", ""},
		{"anthropic", "", "https://p.example/v1/", "https://p.example/v1/messages", ""},
		{"openai", "", "", "https://api.openai.com/v1/chat/completions", ""},
		{"google", "", "", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", ""},
		{"deepseek", "", "", "https://api.deepseek.com/v1/chat/completions", ""},
		{"", "claude-x", "", "https://api.anthropic.com/v1/messages", ""},
		{"", "gemini-x", "", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", ""},
		{"", "llama", "https://p.example/api", "https://p.example/api/chat/completions", ""},
		{"openai", "", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/chat/completions", ""},
		{"openai", "", "http://p.example", "", "must be https"},
		{"openai", "", "https://user:pass@p.example", "", "not valid"},
		{"openai", "", "https://p.example?x=1", "", "not valid"},
		{"other", "", "", "", "unknown vendor"},
	}
	for _, tt := range tests {
		e, err := NewEndpoint(tt.vendor, tt.model, tt.base, "k")
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: %v", tt, err)
			}
		} else if err != nil || e.URL() != tt.url || e.Model == "" {
			t.Errorf("%+v: got %s, %v", tt, e.URL(), err)
		}
	}
}

func TestEndpointsBehindProxies(t *testing.T) {
	for _, tt := range []struct {
		vendor         Vendor
		base, url, err string
	}{
		{Anthropic, "http://proxy.internal:8080", "http://proxy.internal:8080/v1/messages", ""},
		{OpenAI, "http://10.0.0.1/v1/", "http://10.0.0.1/v1/chat/completions", ""},
		{OpenAI, "https://proxy.example/v1", "https://proxy.example/v1/chat/completions", ""},
		{OpenAI, "ftp://proxy.example", "", "must be https"},
		{OpenAI, "proxy.example", "", "not valid"},
	} {
		e, err := NewEndpoint(string(tt.vendor), "m", "", "k")
		if err == nil {
			e, err = e.Behind(tt.base)
		}
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: %v", tt, err)
			}
		} else if err != nil || e.URL() != tt.url || e.Model != "m" || e.Key != "k" {
			t.Errorf("%+v: got %+v, %v", tt, e, err)
		}
	}
}

// What a vendor requires back is sent back.
func TestRequestsRepeatWhatVendorsRequire(t *testing.T) {
	m := []Message{
		{Role: User, Text: "a"},
		{Role: Assistant, Reasoning: "thought", Calls: []Call{{ID: "1", Name: "x", Args: json.RawMessage(`{}`), Extra: json.RawMessage(`{"google":{"thought_signature":"s"}}`)}, {ID: "2", Name: "y", Args: json.RawMessage(`{"p":1}`)}}},
		{Role: Tool, Results: []Result{{ID: "1", Output: "o1"}}},
		{Role: Tool, Results: []Result{{ID: "2", Output: "o2", Failed: true}}},
	}
	tests := []struct {
		vendor Vendor
		want   string
	}{
		{Google, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"x","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}},{"id":"2","type":"function","function":{"name":"y","arguments":"{\"p\":1}"}}]},{"role":"tool","content":"o1","tool_call_id":"1"},{"role":"tool","content":"o2","tool_call_id":"2"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{DeepSeek, `"content":null,"reasoning_content":"thought","tool_calls"`},
		{Anthropic, `{"model":"m","max_tokens":8192,"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"x","input":{}},{"type":"tool_use","id":"2","name":"y","input":{"p":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"o1"},{"type":"tool_result","tool_use_id":"2","content":"o2","is_error":true}]}],"stream":true}`},
	}
	for _, tt := range tests {
		e := Endpoint{Vendor: tt.vendor, Model: "m"}
		got, err := json.Marshal(e.format().encode(&e, &Request{System: "s", Messages: m}))
		if err != nil || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s: got %s, %v", tt.vendor, got, err)
		}
	}
}
