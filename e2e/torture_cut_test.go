package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// cutter is a proxy that cuts every connection after cutAfter.
type cutter struct {
	to  string
	cut func(client, server *net.TCPConn)
}

const cutAfter = 150 * time.Millisecond

// through returns a client of a's gateway through a proxy with the given kind of cut.
func through(t *testing.T, a *rig.API, cut func(client, server *net.TCPConn)) *rig.API {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	c := cutter{strings.TrimPrefix(a.URL, "http://"), cut}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go c.serve(conn.(*net.TCPConn))
		}
	}()
	return &rig.API{URL: "http://" + ln.Addr().String(), Key: a.Key}
}

func (c *cutter) serve(client *net.TCPConn) error {
	defer client.Close()
	conn, err := net.Dial("tcp", c.to)
	if err != nil {
		return err
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	cut := time.AfterFunc(cutAfter, func() { c.cut(client, server) })
	defer cut.Stop()
	go io.Copy(server, client)
	_, err = io.Copy(client, server)
	return err
}

// TestReadersResumeAfterCutConnections covers B34: a client whose connections are reset,
// closed or half closed every few moments resumes at its position, on every surface. Covers
// T-43 too, where a proxy cuts.
func TestReadersResumeAfterCutConnections(t *testing.T) {
	a := api(t)
	reset := func(c *net.TCPConn) {
		c.SetLinger(0)
		c.Close()
	}
	for name, cut := range map[string]func(client, server *net.TCPConn){
		"reset":       func(client, server *net.TCPConn) { reset(server); reset(client) },
		"closed":      func(client, server *net.TCPConn) { server.Close(); client.Close() },
		"half closed": func(_, server *net.TCPConn) { server.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := a.Create(t)
			id, _ := launch(t, a, box.ID, counter{lines: 400, every: 5 * time.Millisecond}.spec())
			c := newCrowd(t)
			c.watch([]*rig.API{through(t, a, cut)}, box.ID, id, 0, surfaces...)
			c.finish(t, counterCode)
			for _, l := range c.ledgers {
				streams := l.name != "durable" && l.name != "bytes" // those are polls, which net/http retries
				if streams && l.reconnects.Load() == 0 {
					t.Errorf("%s was never cut off", l.name)
				}
			}
		})
	}
}

// TestRetentionReportsTheFirstEventKept covers B37: a read of deleted events reports the first
// event kept, and the rest is read from there.
func TestRetentionReportsTheFirstEventKept(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Args: []string{"--retention", "2s"}})
	box := u.Create(t)
	// Without a reader: the gateway keeps in memory what a reader has received.
	id, pid := launch(t, u.API, box.ID, spec("/bin/bash", []string{"-c", "while sleep 0.1; do echo line; done"}))
	path := "/v1/processes/" + id
	var gone struct {
		Code      int    `json:"code"`
		ErrorCode string `json:"error_code"`
		First     uint64 `json:"first"`
	}
	var ans rig.Answer
	if !rig.Poll(30*time.Second, func() bool {
		ans = u.Do(t, http.MethodGet, path+"/events?follow=0", nil)
		return ans.Status == http.StatusGone && json.Unmarshal(ans.Body, &gone) == nil
	}) {
		t.Fatalf("no events are deleted: %.300s", ans)
	}
	if gone.ErrorCode != "gone" || gone.First < 2 {
		t.Errorf("the deleted events: %+v", gone)
	}
	// The first event may be deleted soon.
	if !rig.Poll(10*time.Second, func() bool {
		ans := u.Do(t, http.MethodGet, fmt.Sprintf("%s/events?follow=0&after=%d", path, gone.First+4), nil)
		if ans.Status == http.StatusGone {
			return json.Unmarshal(ans.Body, &gone) != nil
		}
		return ans.Status == http.StatusOK && bytes.HasPrefix(ans.Body, fmt.Appendf(nil, `{"seq":%d,`, gone.First+5))
	}) {
		t.Errorf("the rest is not read after event %d", gone.First+4)
	}
	if ans := u.Do(t, http.MethodGet, "/v1/streams/"+id+"?offset=-1", nil); ans.Status != http.StatusGone {
		t.Errorf("durable stream: %v", ans)
	}
	r := u.ConnectTo(t, box.ID, pid)
	r.Started(t)
	e, err := r.Next()
	if err != nil || !bytes.Contains(e.Payload, []byte(`"gap":{"from":1,`)) {
		t.Errorf("Connect sends after start: %s (%v)", e.Payload, err)
	}
	until(t, r, "line\n")
}
