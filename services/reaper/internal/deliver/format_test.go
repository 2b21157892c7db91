package deliver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/webhook"
)

// sink accepts nothing for a number of requests and then what check accepts. got receives the
// types of the events that were accepted.
type sink struct {
	*httptest.Server
	got chan string
}

func newSink(t *testing.T, down int, status int, check func(h http.Header, body []byte) (string, error)) *sink {
	t.Helper()
	s := &sink{got: make(chan string, 100)}
	n := 0
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if n++; err != nil || n <= down {
			w.WriteHeader(status)
			return
		}
		eventType, err := check(r.Header, body)
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		s.got <- eventType
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) wait(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-s.got:
			if got != w {
				t.Errorf("got %s, want %s", got, w)
			}
		case <-t.Context().Done():
			t.Fatal("the test ended")
		case <-time.After(time.Minute):
			t.Fatalf("%s did not arrive", w)
		}
	}
}

// verifyStandard verifies a delivery as a receiver with the released library does.
func verifyStandard(h http.Header, body []byte) (string, error) {
	wh, err := standard.NewWebhookRaw([]byte(secret))
	if err != nil {
		return "", err
	}
	var b struct {
		Type string `json:"type"`
		Data struct {
			Type string `json:"type"`
		} `json:"data"`
	}
	if err := errors.Join(wh.Verify(body, h), json.Unmarshal(body, &b)); err != nil {
		return "", err
	}
	if b.Data.Type != b.Type || h.Get("e2b-signature") != "" {
		return "", errors.New("data or headers of another format")
	}
	return b.Type, nil
}

// decodeLog decodes a delivery as a collector does.
func decodeLog(h http.Header, body []byte) (string, error) {
	var all logs.LogsData
	if err := proto.Unmarshal(body, &all); err != nil {
		return "", err
	}
	if h.Get("Content-Type") != "application/x-protobuf" || h.Get("Authorization") != "Bearer "+secret {
		return "", errors.New("headers")
	}
	r := all.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	for _, kv := range r.Body.GetKvlistValue().Values {
		if kv.Key == "type" && kv.Value.GetStringValue() == r.EventName && r.TimeUnixNano > 0 {
			return r.EventName, nil
		}
	}
	return "", errors.New("the body has another type than the record")
}

// A receiver of the formats standard and OTLP that is down for more attempts than E2B's receivers
// get loses no event, and gets them in order.
func TestFormatsLoseNothingWhileTheReceiverIsDown(t *testing.T) {
	for _, test := range []struct {
		format webhook.Format
		check  func(http.Header, []byte) (string, error)
	}{{webhook.FormatStandard, verifyStandard}, {webhook.FormatOTLP, decodeLog}} {
		t.Run(test.format.String(), func(t *testing.T) {
			w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
			s := newSink(t, 5, http.StatusServiceUnavailable, test.check)
			w.hookOf("alice", s.URL, test.format)
			w.sandbox("alice", 1)
			w.deliver(w.config())
			s.wait(t, string(webhook.Created), string(webhook.Updated))
		})
	}
}

// An OTLP receiver that calls a request bad does not get it again: the next event follows.
func TestBadLogsAreGivenUp(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	s := newSink(t, 1, http.StatusBadRequest, decodeLog)
	w.hookOf("alice", s.URL, webhook.FormatOTLP)
	w.sandbox("alice", 1)
	w.deliver(w.config())
	s.wait(t, string(webhook.Updated))
}
