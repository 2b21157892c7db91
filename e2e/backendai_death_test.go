package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// try sends a request that may fail because a program is killed.
func (b *backend) try(method, path, mime string, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.a.URL+path, body)
	if err != nil {
		return 0, nil, err
	}
	if mime != "" {
		req.Header.Set("Content-Type", mime)
	}
	b.sign(req)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, raw, err
}

// counted is a bash script that prints the numbers from 1 to n within some seconds.
func counted(n int) string {
	return fmt.Sprintf("for i in $(seq %d); do echo $i; sleep 0.05; done", n)
}

// numbersTo returns the output of counted.
func numbersTo(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintln(&s, i+1)
	}
	return s.String()
}

// TestBackendAIGatewayKilled kills a gateway under everything that a client may have open. The other
// gateway has all of it.
func TestBackendAIGatewayKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	access, secret := pairOf(t, s.APIs[0])
	one := &backend{t, s.APIs[0], access, secret}
	two := one.at(s.APIs[1])
	one.newSession("base", "death")
	kill := func(t *testing.T) {
		t.Helper()
		s.Program("gateway-1").Kill9()
	}
	restart := func(t *testing.T) {
		t.Helper()
		must(t, s.RestartProgram("gateway-1"))
	}
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, one, two *backend, kill func())
	}{
		{"a long poll", diesInPoll},
		{"a run on WebSocket", diesInStream},
		{"vim", func(t *testing.T, one, two *backend, kill func()) { diesInProgram(t, one, two, kill, "vim") }},
		{"top", func(t *testing.T, one, two *backend, kill func()) { diesInProgram(t, one, two, kill, "top") }},
		{"an upload", diesInUpload},
		{"a tunnel", diesInTunnel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := *one, *two
			a.t, b.t = t, t
			defer restart(t)
			tt.run(t, &a, &b, func() { kill(t) })
		})
	}
}

// diesInPoll kills the gateway during a long poll: no output is missing and none is repeated.
func diesInPoll(t *testing.T, one, two *backend, kill func()) {
	const n = 100 // five seconds, and thus more than two polls
	request := map[string]any{"mode": "query", "runId": "death-poll", "code": "rm -f mark; " + strings.Replace(counted(n), "echo", "[ $i != 50 ] || touch mark; echo", 1)}
	var out strings.Builder
	killed := make(chan struct{})
	for polls := 0; ; polls++ {
		raw, err := json.Marshal(request)
		must(t, err)
		if polls == 1 {
			go func() {
				defer close(killed)
				rig.Poll(viewerTimeout, func() bool {
					status, _, err := two.try("GET", "/session/death/download_single?file=mark", "", nil)
					return err == nil && status == 200
				})
				kill()
			}()
		}
		status, raw, err := one.try("POST", "/session/death", "application/json", bytes.NewReader(raw))
		request = map[string]any{"mode": "continue", "runId": "death-poll", "code": ""}
		if err != nil {
			<-killed
			one = two // the request may have been received
			continue
		}
		var r struct{ Result backendResult }
		if err := json.Unmarshal(raw, &r); err != nil || status != 200 {
			t.Fatalf("%d %s", status, raw)
		}
		for _, item := range r.Result.Console {
			out.WriteString(item[1].(string))
		}
		if r.Result.Status == "finished" {
			break
		}
	}
	if out.String() != numbersTo(n) {
		t.Errorf("the output is %q", out.String())
	}
}

// diesInStream kills the gateway during a run on a WebSocket connection: the run goes on, and the
// next one waits for it.
func diesInStream(t *testing.T, one, two *backend, kill func()) {
	const n = 60
	ws := one.dial("/stream/session/death/execute")
	must(t, ws.WriteJSON(map[string]any{"mode": "query", "code": "for i in $(seq " + strconv.Itoa(n) + "); do echo $i | tee -a stream.txt; sleep 0.05; done"}))
	var r backendResult
	for len(r.Console) == 0 {
		must(t, ws.ReadJSON(&r))
	}
	kill()
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			break // the gateway closed the connection
		}
	}
	if _, out, code := two.run("death", map[string]any{"mode": "query", "code": "wc -l < stream.txt"}, ""); out != fmt.Sprintf("stdo:%d\n", n) || code != 0 {
		t.Errorf("after the run: %q %d", out, code)
	}
}

// diesInProgram kills the gateway of a terminal with a program that uses the whole screen. A client
// that returns at the other gateway sees what a client that was there all the time sees.
func diesInProgram(t *testing.T, one, two *backend, kill func(), program string) {
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program + " is not installed")
	}
	witness := two.view("death")
	v := one.view("death")
	v.shell()
	quit := "q"
	if program == "vim" {
		v.enter("vim -u NONE -c 'set nocp' file.txt\r")
		v.shows("\n~ ")
		v.enter("ifirst line\rsecond line\x1b:syntax on\ryy20pggO\x1b5Gxxi")
		v.shows("-- INSERT --")
		quit = "\x1b:q!\r"
	} else {
		v.enter("top -d 0.5\r")
		v.shows("PID")
	}
	v.same(witness)
	kill()
	<-v.done
	back := two.view("death")
	back.shows(map[string]string{"vim": "-- INSERT --", "top": "PID"}[program])
	back.same(witness)
	if program == "vim" { // what is typed now changes both in the same way
		back.enter("typed later")
		back.shows("typed later")
		back.same(witness)
	}
	back.enter(quit)
	for !strings.Contains(back.output(), "left\r\n") { // the program may read what is typed before its end
		back.enter("\recho le''ft\r")
		rig.Poll(time.Second, func() bool { return strings.Contains(back.output(), "left\r\n") })
		if back.ended() {
			t.Fatal("the terminal has ended")
		}
	}
}

// diesInUpload kills the gateway while it receives a file: the old content stays, and a new file
// does not appear.
func diesInUpload(t *testing.T, one, two *backend, kill func()) {
	two.run("death", map[string]any{"mode": "query", "code": "mkdir -p up; echo old > up/old.txt"}, "")
	body, w := io.Pipe()
	form := multipart.NewWriter(w)
	sent := make(chan struct{})
	go func() {
		part, err := form.CreateFormFile("src", "up/old.txt")
		if err == nil {
			part.Write(bytes.Repeat([]byte("new"), 200<<10))
			close(sent)
		}
	}()
	answered := make(chan error, 1)
	go func() {
		_, _, err := one.try("POST", "/session/death/upload", form.FormDataContentType(), body)
		answered <- err
	}()
	<-sent
	kill()
	w.CloseWithError(errors.New("the gateway was killed"))
	if err := <-answered; err == nil {
		t.Error("the upload was answered")
	}
	if _, out, _ := two.run("death", map[string]any{"mode": "query", "code": "cat up/old.txt; ls -A up"}, ""); out != "stdo:old\nold.txt\n" {
		t.Errorf("after the upload: %.200q", out)
	}
}

// echoServer is a server that sends back what it receives, on port 8000.
const echoServer = `cat > echo.py <<'END'
import socket, threading
s = socket.create_server(("127.0.0.1", 8000))
def serve(c):
    while data := c.recv(65536):
        c.sendall(data)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
END
setsid python3 echo.py > /dev/null 2>&1 < /dev/null &`

// diesInTunnel kills the gateway of a tunnel: the client sees the connection end, and connects again.
func diesInTunnel(t *testing.T, one, two *backend, kill func()) {
	two.json(201, "POST", "/session", map[string]any{"image": "base", "name": "death-tunnel", "config": map[string]any{"preopen_ports": []int{8000}}}, nil)
	t.Cleanup(func() { two.destroy("death-tunnel") })
	two.run("death-tunnel", map[string]any{"mode": "query", "code": echoServer}, "")
	ws, answer := one.dialOpen("/stream/session/death-tunnel/tcpproxy?app=8000", []byte("ping"))
	if string(answer) != "ping" {
		t.Fatalf("%q", answer)
	}
	kill()
	if _, _, err := ws.ReadMessage(); err == nil {
		t.Error("a message after the gateway was killed")
	}
	if _, answer := two.dialOpen("/stream/session/death-tunnel/tcpproxy?app=8000", []byte("again")); string(answer) != "again" {
		t.Errorf("%q", answer)
	}
}

// TestBackendAIHostKilled kills hostd under terminals, each of a session of its own: all shells go on.
func TestBackendAIHostKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, HostArgs: []string{"--capacity", "128"}})
	access, secret := pairOf(t, s.APIs[0])
	n := 4
	if os.Getenv(EnvSoak) != "" {
		n = 100
	}
	viewers := make([]*backendViewer, n)
	for i := range viewers {
		b := &backend{t, s.APIs[i%2], access, secret}
		name := fmt.Sprintf("host-%03d", i)
		b.newSession("base", name)
		viewers[i] = b.view(name)
	}
	for _, v := range viewers {
		v.shell()
		v.enter("x=$$; echo pid''-$$-\r")
		v.await("pid-")
	}
	for round := range 2 {
		s.Program("host-1").Kill9()
		for _, v := range viewers { // typed while no hostd runs
			v.enter(fmt.Sprintf("echo round-%d-$(($$-x))-\r", round))
		}
		must(t, s.RestartProgram("host-1"))
		for _, v := range viewers {
			v.await(fmt.Sprintf("round-%d-0-\r\n", round))
		}
	}
}

// TestBackendAINATSKilled kills NATS between input and its echo: each line is run once.
func TestBackendAINATSKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	access, secret := pairOf(t, s.APIs[0])
	b := &backend{t, s.APIs[0], access, secret}
	b.newSession("base", "nats")
	v := b.view("nats")
	v.shell()
	rounds := 3
	if os.Getenv(EnvSoak) != "" {
		rounds = 30
	}
	for i := range rounds {
		v.enter(fmt.Sprintf("echo li''ne-%d-\r", i))
		_, err := s.Crash("nats-1")
		must(t, err)
		v.await(fmt.Sprintf("line-%d-\r\n", i))
	}
	v.enter("echo do''ne\r")
	v.await("done\r\n")
	for i := range rounds {
		if got := strings.Count(v.output(), fmt.Sprintf("line-%d-\r\n", i)); got != 1 {
			t.Errorf("line %d was printed %d times", i, got)
		}
	}
	if len(v.errors) > 0 {
		t.Errorf("errors: %q", v.errors)
	}
}

// TestBackendAIDestroyed ends sessions in every phase: those that use them are told, and the name is
// free.
func TestBackendAIDestroyed(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	create := func(name string, enqueue bool) {
		b.json(201, "POST", "/session", map[string]any{"image": "base", "name": name, "enqueueOnly": enqueue, "config": map[string]any{"preopen_ports": []int{8000}}}, nil)
		b.t.Cleanup(func() { b.destroy(name) })
	}
	gone := func(name string) {
		t.Helper()
		b.call(404, "GET", "/session/"+name, "", nil)
		b.call(404, "DELETE", "/session/"+name, "", nil)
	}
	for i := range 3 { // while it is created, repeatedly with the same name
		create("gone-queued", true)
		if status, raw, err := b.try("DELETE", "/session/gone-queued", "", nil); err != nil || status != 200 {
			t.Fatalf("round %d: %d %s %v", i, status, raw, err)
		}
		gone("gone-queued")
	}
	create("gone-busy", false)
	answers := make(chan string, 3)
	go func() { // a long poll
		status, raw, err := b.try("POST", "/session/gone-busy", "application/json", strings.NewReader(`{"mode":"query","code":"sleep 100"}`))
		for err == nil && status == 200 && bytes.Contains(raw, []byte(`"continued"`)) {
			var r struct{ Result backendResult }
			json.Unmarshal(raw, &r)
			status, raw, err = b.try("POST", "/session/gone-busy", "application/json", strings.NewReader(`{"mode":"continue","code":"","runId":"`+r.Result.RunID+`"}`))
		}
		answers <- fmt.Sprint("poll ", status == 404 || bytes.Contains(raw, []byte(`"finished"`)), err)
	}()
	v := b.view("gone-busy")
	v.shell()
	run := b.dial("/stream/session/gone-busy/execute")
	must(t, run.WriteJSON(map[string]any{"mode": "query", "code": "echo never"})) // behind the poll
	b.json(200, "POST", "/session/gone-busy", map[string]any{"mode": "batch", "runId": "x", "code": "", "options": map[string]any{"exec": "true"}}, nil)
	v.enter(strings.ReplaceAll(echoServer, "\n", "\r") + "\r")
	tunnel, _ := b.dialOpen("/stream/session/gone-busy/tcpproxy?app=8000", []byte("x"))
	var all sync.WaitGroup
	statuses := make(chan int, 5)
	for range cap(statuses) { // several clients at once
		all.Go(func() {
			status, raw, err := b.try("DELETE", "/session/gone-busy", "", nil)
			if err != nil || status != 200 && status != 404 {
				t.Errorf("DELETE: %d %s %v", status, raw, err)
			}
			statuses <- status
		})
	}
	all.Wait()
	close(statuses)
	ok := 0
	for s := range statuses {
		if s == 200 {
			ok++
		}
	}
	if ok == 0 {
		t.Error("no request ended the session")
	}
	gone("gone-busy")
	<-v.done
	if !websocket.IsCloseError(v.end, 1000) {
		t.Errorf("the terminal ended with %v, want 1000", v.end)
	}
	if _, _, err := tunnel.ReadMessage(); !websocket.IsCloseError(err, 1001) {
		t.Errorf("the tunnel ended with %v, want 1001", err)
	}
	for {
		if _, _, err := run.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, 1000) {
				t.Errorf("the run ended with %v, want 1000", err)
			}
			break
		}
	}
	if got := <-answers; got != "poll true<nil>" && got != "poll true <nil>" {
		t.Error(got)
	}
	create("gone-busy", false) // the name is free
}

// TestBackendAIRestartUnderInput restarts a session while a viewer types: its connection stays, and it
// gets the next shell.
func TestBackendAIRestartUnderInput(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.newSession("base", "restarted")
	v := b.view("restarted")
	v.shell()
	stop, typed := make(chan struct{}), make(chan error, 1)
	go func() {
		every := time.NewTicker(time.Millisecond)
		defer every.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				typed <- nil
				return
			case <-every.C:
			}
			if err := v.try(chars(fmt.Sprintf("echo t''yped-%d-\r", i))); err != nil {
				typed <- err
				return
			}
		}
	}()
	for i := range 3 {
		if i%2 == 0 {
			b.call(204, "PATCH", "/session/restarted", "", nil)
		} else {
			must(t, v.try(map[string]any{"type": "restart"}))
		}
		if !rig.Poll(viewerTimeout, func() bool {
			shells := strings.Split(v.output(), "Restarting...")
			return len(shells) > i+1 && strings.Contains(shells[i+1], "\ntyped-")
		}) {
			out := v.output()
			t.Fatalf("round %d: no shell after the restart: %q %q %v", i, out[max(0, len(out)-500):], v.errors, v.end)
		}
	}
	close(stop)
	must(t, <-typed)
	v.enter("\recho al''ive\r")
	v.await("alive\r\n")
}

// TestBackendAIManyViewers has many viewers of one terminal, of which one reads nothing: it delays no
// other.
func TestBackendAIManyViewers(t *testing.T) {
	t.Parallel()
	n, lines := 8, 200_000
	if os.Getenv(EnvSoak) != "" {
		n, lines = 200, 400_000
	}
	b := newBackend(t)
	b.newSession("base", "viewers")
	first := b.view("viewers")
	first.shell()
	dead := b.dial("/stream/session/viewers/pty") // nothing reads from it
	defer dead.Close()
	ends := make(chan error, n)
	for range n {
		ws := b.dial("/stream/session/viewers/pty")
		go func() {
			var tail string
			for {
				var m struct {
					Type string
					Data []byte
				}
				ws.SetReadDeadline(time.Now().Add(viewerTimeout))
				if err := ws.ReadJSON(&m); err != nil {
					ends <- err
					return
				}
				tail += string(m.Data)
				if strings.Contains(tail, "the-end\r\n") {
					ends <- nil
					return
				}
				tail = tail[max(0, len(tail)-16):]
			}
		}()
	}
	first.enter(fmt.Sprintf("seq %d; echo the''-end\r", lines))
	for range n {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}
