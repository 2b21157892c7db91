package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// numbered is a script that prints numbered lines until a file exists, and exits with 3.
func numbered(stop string) string {
	return `i=0; while [ ! -e ` + stop + ` ]; do echo line-$i; i=$((i+1)); [ $((i%10)) != 0 ] || sleep 0.02; done; echo end-$i; exit 3`
}

// checkNumbered fails the test unless a process printed each line once and in order.
func checkNumbered(t *testing.T, id string, p *codexProcess, out []byte) (lines int) {
	t.Helper()
	all := strings.Split(strings.ReplaceAll(string(out), "\r\n", "\n"), "\n")
	for i, line := range all {
		if line == fmt.Sprintf("end-%d", i) {
			lines = i
			break
		}
		if line != fmt.Sprintf("line-%d", i) {
			t.Fatalf("%s: line %d of %d is %.80q", id, i, len(all), line)
		}
	}
	if lines == 0 || p.exits != 1 || p.code != 3 {
		t.Errorf("%s: %d lines, %d exits, code %d", id, lines, p.exits, p.code)
	}
	return lines
}

// start starts a shell command.
func (c *codexClient) start(id, script string, fields ...any) *codexProcess {
	c.t.Helper()
	if err := c.call("process/start", startArgs(id, script, fields...), nil); err != nil {
		c.t.Fatal(err)
	}
	return c.track(id)
}

// Connections are cut at random frames, also during the handshake and the recovery: each process
// gets every byte once, and one exit.
func TestCodexCuts(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	cuts := 200
	if os.Getenv(EnvSoak) != "" {
		cuts = 10_000
	}
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	stop := "/tmp/codex-cuts-" + box.ID
	pipe := c.start("pipe", numbered(stop))
	tty := c.start("tty", numbered(stop), "tty", true)
	split := c.start("split", "exec 3>&2; ("+numbered(stop)+") & ("+numbered(stop)+") >&3; wait $!; exit 3")
	made := 0
	c.cutAt = c.frames + 1 // the first cut
	c.untilClosed(func() int {
		if made++; made >= cuts {
			if made == cuts {
				a.RPC(t, box.ID, "/filesystem.Filesystem/MakeDir", map[string]any{"path": stop})
			}
			return 0
		}
		return 1 + rand.IntN(12)
	})
	n := checkNumbered(t, "pipe", pipe, pipe.out["stdout"])
	checkNumbered(t, "tty", tty, tty.out["pty"])
	checkNumbered(t, "split", split, split.out["stdout"])
	checkNumbered(t, "split", split, split.out["stderr"])
	t.Logf("%d connections, %d lines", made, n)
}

// The connection is cut between a request and its answer: a repeated request finds what the
// first one did, and nothing happens twice.
func TestCodexCutBeforeAnswer(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/codex-answers-" + box.ID
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	must(t, c.call("fs/createDirectory", codexArgs{"path": dir}, nil))
	// lose sends a request and cuts the connection.
	lose := func(method string, params any) {
		t.Helper()
		if _, err := c.request(method, params); err != nil {
			t.Fatal(err)
		}
		must(t, c.connect(never))
	}
	// ask sends a request again; codes are of errors that say that the first one was executed.
	ask := func(method string, params any, codes ...int) {
		t.Helper()
		err := c.call(method, params, nil)
		var refused *codexError
		for _, code := range codes {
			if errors.As(err, &refused) && refused.Code == code {
				return
			}
		}
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	rounds := 3
	if os.Getenv(EnvSoak) != "" {
		rounds = 300
	}
	for i := range rounds {
		id := fmt.Sprint("p", i)
		args := startArgs(id, "echo started >>"+dir+"/"+id+"; while read l; do echo got:$l; done; exit 4", "pipeStdin", true)
		lose("process/start", args)
		ask("process/start", args, -32600)
		p := c.track(id)
		write := codexArgs{"processId": id, "chunk": base64Of("hello\n"), "writeId": "1"}
		lose("process/write", write)
		ask("process/write", write)
		must(t, c.receiveUntil(func() bool { return len(p.out["stdout"]) > 0 }))
		lose("process/read", codexArgs{"processId": id, "afterSeq": 0})
		ask("process/read", codexArgs{"processId": id, "afterSeq": 0})
		lose("process/signal", codexArgs{"processId": "none", "signal": "interrupt"})
		lose("fs/writeFile", codexArgs{"path": dir + "/file", "dataBase64": base64Of("content")})
		ask("fs/writeFile", codexArgs{"path": dir + "/file", "dataBase64": base64Of("content")})
		lose("fs/readFile", codexArgs{"path": dir + "/file"})
		lose("environment/info", nil)
		lose("process/terminate", codexArgs{"processId": id})
		ask("process/terminate", codexArgs{"processId": id})
		c.untilClosed(never)
		if got := string(p.out["stdout"]); got != "got:hello\n" || p.exits != 1 {
			t.Errorf("%s: %q, %d exits", id, got, p.exits)
		}
		var file struct {
			Data []byte `json:"dataBase64"`
		}
		must(t, c.call("fs/readFile", codexArgs{"path": dir + "/" + id}, &file))
		if string(file.Data) != "started\n" {
			t.Errorf("%s ran more than once: %q", id, file.Data)
		}
	}
}

// What a process writes while no client is attached arrives after the resume.
func TestCodexBacklog(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	size := 12 << 20
	if os.Getenv(EnvSoak) != "" {
		size = 100 << 20
	}
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	const script = `f=$(mktemp); while [ ! -e %s ]; do sleep 0.05; done; head -c %d /dev/urandom | tee $f; sha256sum <$f >&2; rm $f; exit 6`
	stop := "/tmp/codex-backlog-" + box.ID
	p := c.start("p", fmt.Sprintf(script, stop, size))
	c.drop()
	a.RPC(t, box.ID, "/filesystem.Filesystem/MakeDir", map[string]any{"path": stop})
	if !rig.Poll(2*codexTimeout, func() bool {
		ans := a.Do(t, http.MethodGet, "/v1/processes?sandbox="+box.ID+"&state=running", nil)
		return !bytes.Contains(ans.Body, []byte("urandom"))
	}) {
		t.Fatal("the process does not end while no client is attached")
	}
	c.untilClosed(never)
	sum := fmt.Sprintf("%x", sha256.Sum256(p.out["stdout"]))
	if len(p.out["stdout"]) != size || !strings.HasPrefix(string(p.out["stderr"]), sum) || p.exits != 1 || p.code != 6 {
		t.Errorf("%d bytes, %d exits, code %d", len(p.out["stdout"]), p.exits, p.code)
	}
}

// terminate is sent twice around the exit: there is one exit, with a code that is true.
func TestCodexTerminateAroundExit(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	for i := range 12 {
		id := fmt.Sprint("p", i)
		script := "read l; echo $l; exit 9"
		p := c.start(id, script, "pipeStdin", true)
		requests := []string{"process/terminate", "process/terminate"}
		if i%2 == 0 {
			requests = []string{"process/write", "process/terminate", "process/terminate"}
		}
		for _, method := range requests {
			args := codexArgs{"processId": id}
			if method == "process/write" {
				args["chunk"], args["writeId"] = base64Of("bye\n"), "1"
			}
			if _, err := c.request(method, args); err != nil {
				t.Fatal(err)
			}
		}
		if i%4 == 3 { // whether they arrived is not known
			must(t, c.connect(never))
			must(t, c.call("process/terminate", codexArgs{"processId": id}, nil))
		}
		c.untilClosed(never)
		out := string(p.out["stdout"])
		if p.exits != 1 || p.code != 9 && p.code != 137 || p.code == 9 && out != "bye\n" || out != "" && out != "bye\n" {
			t.Errorf("%s: %d exits, code %d, %q", id, p.exits, p.code, out)
		}
		var again struct {
			Running bool `json:"running"`
		}
		if err := c.call("process/terminate", codexArgs{"processId": id}, &again); err != nil || again.Running {
			t.Errorf("%s: running %v after its end, %v", id, again.Running, err)
		}
	}
}
