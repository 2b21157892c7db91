package natsd_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/natsd"
)

func TestAServerIsNotOpenToAll(t *testing.T) {
	for _, cfg := range []natsd.Config{
		{Listen: "0.0.0.0:0"},
		{Listen: ":0"},
		{Listen: "[::]:0"},
		{Listen: "127.0.0.1:0", Cluster: "c", ClusterOn: "0.0.0.0:0"},
	} {
		cfg.Dir = t.TempDir()
		if srv, err := natsd.Start(cfg); err == nil {
			srv.Stop()
			t.Errorf("%+v: started without a token", cfg)
		}
	}
}

func TestATokenKeepsStrangersOut(t *testing.T) {
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "right"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	for _, tt := range []struct {
		token string
		ok    bool
	}{{"right", true}, {"wrong", false}, {"", false}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		log, err := events.Open(ctx, events.Config{URL: srv.URL(), Token: tt.token})
		cancel()
		if (err == nil) != tt.ok {
			t.Errorf("token %q: %v", tt.token, err)
		}
		if err == nil {
			log.Close()
		}
	}
}
