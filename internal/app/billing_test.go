package app

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAtZero(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk_test_1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		atZero, stripeKey string
		refuse, ok        bool
	}{
		{"allow", "", false, true}, {"allow", key, false, true}, {"refuse", key, true, true},
		{"refuse", "", false, false}, {"", key, false, false}, {"Refuse", key, false, false},
	} {
		b := billing{atZero: tt.atZero, stripeKey: tt.stripeKey, stripeWebhookKey: key, stripeReturn: "https://example.com", stripeAPI: "https://example.com"}
		if c, err := b.config(); (err == nil) != tt.ok || tt.ok && c.Refuse != tt.refuse {
			t.Errorf("%q with key %q: refuse %v, %v", tt.atZero, tt.stripeKey, c.Refuse, err)
		}
	}
}
