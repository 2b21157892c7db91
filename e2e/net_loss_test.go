package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// Each request to a port gets its own response, and none is lost or sent twice. Requests
// have bodies, so that no client repeats them.
func TestPortsLoseNothing(t *testing.T) {
	a := api(t)
	host := servePort(t, a, a.Create(t, "timeout", 3600))
	const clients = 200 // more than the streams of a sandbox
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: clients}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var next, lost atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for i := next.Add(1); i <= requests; i = next.Add(1) {
				if err := oneRequest(client, a, host, i); err != nil && lost.Add(1) <= 10 {
					t.Errorf("request %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	d := time.Since(begin)
	t.Logf("%d requests, %d lost, %.0f a second", requests, lost.Load(), requests/d.Seconds())
}

// oneRequest makes the server echo a unique body.
func oneRequest(client *http.Client, a *rig.API, host string, i int64) error {
	body := bytes.Repeat([]byte(fmt.Sprintf("%d ", i)), 1+rand.IntN(500))
	req, err := http.NewRequest(http.MethodPost, a.URL+"/echo", io.MultiReader(bytes.NewReader(body)))
	if err != nil {
		return err
	}
	req.Host, req.ContentLength = host, int64(len(body))
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || !bytes.Equal(got, body)) {
		err = fmt.Errorf("%d, %d bytes of %d: %.200q", res.StatusCode, len(got), len(body), got)
	}
	return err
}

// TestNetworkOfEveryDriver sends data into and out of a sandbox of each driver that works
// here, and kills its hostd with connections in both directions open: both ends get an
// error, and both directions work again after the restart.
func TestNetworkOfEveryDriver(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name string
		args []string
		has  programs
	}{{"namespace", nil, debian()}, {"gvisor", nil, debian()}, {"microvm", []string{"--tcg"}, busybox()}} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the timeout of a tunnel
			rig.SkipUnless(t, rig.Options{Driver: d.name, Args: d.args})
			networkOf(t, rig.Topology{Driver: d.name, HostArgs: d.args}, d.has)
		})
	}
}

func networkOf(t *testing.T, top rig.Topology, has programs) {
	t.Helper()
	world := listen(t)
	top.HostArgs = append(slices.Clone(top.HostArgs), "--egress", "internet", "--egress-allow", "127.0.0.1")
	s := newTopology(t, top)
	a := s.APIs[0]
	box := a.Create(t, "allow_internet_access", true)
	host := has.servePort(t, a, box)
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	inAndOut := func(when string) {
		t.Helper()
		if status, got := answer(t, a, "POST", host, "/echo", want); status != 200 || got != string(want) {
			t.Errorf("%s, in: %d, %d bytes of %d", when, status, len(got), len(want))
		}
		if got := has.egress(t, a, box.ID, "CONNECT "+world, "wc -c"); strings.TrimSpace(got) != fmt.Sprint(serverSize) {
			t.Errorf("%s, out: %q bytes of %d", when, got, serverSize)
		}
	}
	inAndOut("at first")
	for _, to := range []string{"169.254.169.254:80", "[::ffff:a9fe:a9fe]:80", "10.0.0.1:80", "127.0.0.2:80", "2852039166:80"} {
		if got := has.egress(t, a, box.ID, "CONNECT "+to, "cat"); !strings.Contains(got, "may not reach") && !strings.Contains(got, "neither an address") {
			t.Errorf("%s: %q", to, got)
		}
	}

	// A download and an outgoing connection that do not end by themselves.
	res, err := visit(t.Context(), a, "GET", host, "/big/100000000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	out := has.ask(t, a, box.ID, "CONNECT "+world, "cat >/dev/null; echo cut $?", "x")
	defer out.Close()
	out.Until(t, func(l *rig.Line) bool { return strings.Contains(l.Raw, "open") })
	s.Program("host-1").Kill9()
	must(t, s.RestartProgram("host-1"))
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("a truncated download looks complete")
	}
	if lines := rig.Output(out.All(t), "stdout"); !strings.Contains(lines, "cut ") {
		t.Errorf("the outgoing connection: %q", lines)
	}
	if !rig.Poll(time.Minute, func() bool { status, _ := answer(t, a, "GET", host, "/", nil); return status == 200 }) {
		t.Fatal("the port remains closed")
	}
	inAndOut("after a kill of hostd")
}

// serverSize is the number of bytes that the external server sends.
const serverSize = 1 << 20

// listen starts an external server, which sends serverSize bytes and closes the connection,
// or waits forever if it receives a word.
func listen(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				word, _ := io.ReadAll(io.LimitReader(c, 1))
				c.Write(make([]byte, serverSize))
				if len(word) == 1 && word[0] == 'x' {
					io.Copy(io.Discard, c)
				}
			}()
		}
	}()
	return ln.Addr().String()
}
