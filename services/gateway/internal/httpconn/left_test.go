package httpconn

import (
	"net"
	"testing"
)

func TestLeftDetectsADisconnectedClient(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peerClosed(conn) {
		t.Error("a silent client counts as disconnected")
	}
	client.Write([]byte("ab"))
	b := make([]byte, 1)
	conn.Read(b)
	if peerClosed(conn) {
		t.Error("a client that has sent data counts as disconnected")
	}
	client.(*net.TCPConn).CloseWrite()
	conn.Read(b)
	if n, err := conn.Read(b); err == nil {
		t.Fatalf("%d bytes after the end", n)
	}
	if !peerClosed(conn) {
		t.Error("a disconnected client counts as connected")
	}
}
