package port_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// Clients must not reach a proxy in a sandbox, above all its egress proxy.
func TestConnectIsNotPassedOn(t *testing.T) {
	addr, in := gateway(t, func(http.ResponseWriter, *http.Request) { t.Error("the server received a request") })
	for _, target := range []string{"/", "api.test:443"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: api.test:443\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 8080\r\n\r\n", target, id)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("CONNECT %s: %s", target, res.Status)
		}
	}
	if in.dials != 0 {
		t.Errorf("%d connections were made", in.dials)
	}
}
