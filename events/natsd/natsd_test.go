package natsd_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/natsd"
)

func TestAPublicAddressRequiresAToken(t *testing.T) {
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

func TestAWrongTokenIsRejected(t *testing.T) {
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: "right"})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Stop()
	for _, tt := range []struct {
		token string
		ok    bool
	}{{"right", true}, {"wrong", false}, {"", false}} {
		within := time.Second
		if tt.ok {
			within = time.Minute // it creates the streams
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
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

// A server stops in time although its cluster has no majority, it has many clients, and one
// of them never reads.
func TestALameDuckStopsInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("a lame duck takes seconds")
	}
	srv, err := natsd.Start(natsd.Config{
		Dir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0",
		Cluster: "c", ClusterOn: "127.0.0.1:0", Routes: []string{"nats://127.0.0.1:1", "nats://127.0.0.1:2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var last *nats.Conn
	for range 60 {
		if last, err = nats.Connect(srv.URL(), nats.MaxReconnects(-1)); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
	}
	unread, err := net.Dial("tcp", srv.URL()[len("nats://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	if _, err := fmt.Fprint(unread, "CONNECT {\"verbose\":false}\r\nSUB flood 1\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if err := last.Publish("flood", make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.FlushTimeout(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	srv.LameDuck()
	if took := time.Since(began); took > natsd.StopTimeout {
		t.Errorf("it took %v, want at most %v", took, natsd.StopTimeout)
	} else {
		t.Logf("it took %v", took.Round(time.Millisecond))
	}
}
