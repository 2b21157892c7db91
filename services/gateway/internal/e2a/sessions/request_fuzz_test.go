package sessions

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
)

// No body of a create fails in another way than Invalid, and one that is accepted stays within the limits.
func FuzzCreate(f *testing.F) {
	for _, raw := range []string{
		`{"template":"standard","llm":{"vendor":"anthropic"},"user_id":"you"}`,
		`{"template":"cua","llm":{"vendor":"openai","model":"o3","base_url":"https://x"},"user_id":"u","secrets":["a","b"],"ttl_seconds":9223372036854775807}`,
		`{"agent":{"kind":"deictic","version":"1"},"template":"browser","llm":{"vendor":"google"},"user_id":"u","app":{"id":"a","set_id":"b","capability_sets":{"x":[1]}}}`,
		`{"template":"standard","llm":{"vendor":"deepseek"},"user_id":"\ud800","ttl_seconds":-1}`, `{"llm":null,"app":{"capability_sets":[]}}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseCreate(raw, func(_, _ string) error { return nil })
		if err != nil {
			if !kind.Is(err, kind.Invalid) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		terms := &c.Terms
		if c.TTL < time.Second || c.TTL > maxTTL || terms.EndUser == "" || len(terms.EndUser) > maxText || len(terms.Bundles) > maxBundles {
			t.Errorf("%q: %+v", raw, c)
		}
		if terms.App.ID == "" || terms.App.Set == "" || terms.App.Capabilities != "" && !json.Valid([]byte(terms.App.Capabilities)) {
			t.Errorf("%q: app %+v", raw, terms.App)
		}
	})
}

// No body of a resume fails in another way than Invalid or NotFound.
func FuzzResume(f *testing.F) {
	for _, raw := range []string{`{"chat_session_id":"ses_x"}`, `{"chat_session_id":"a.*>","ttl_seconds":7200}`, `{"chat_session_id":""}`, `[]`} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, ttl, err := parseResume(raw)
		if err != nil {
			if !kind.Is(err, kind.Invalid) && !kind.Is(err, kind.NotFound) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if again, err := conversation.ParseID(string(id)); err != nil || again != id || ttl < time.Second || ttl > maxTTL {
			t.Errorf("%q: %q, %v", raw, id, ttl)
		}
	})
}
