package port_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// A client that was disconnected must not look like one that has sent everything.
func TestADisconnectIsPassedOnAfterASwitch(t *testing.T) {
	ended := make(chan error, 1)
	addr, _ := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, err = io.Copy(io.Discard, c)
		ended <- err
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 8080-%s.x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", id)
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	io.WriteString(c, "half of what")
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; err == nil {
		t.Error("the server sees an orderly end")
	}
}
