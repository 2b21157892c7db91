package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"slices"
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

// The connection is cut between a request of each method and its answer: a repeated request finds
// what the first one did, and nothing happens twice.
func TestCodexCutBeforeAnswer(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/codex-answers-" + box.ID
	c := newCodexClient(t, "/codex/"+box.ID, a)
	must(t, c.connect(never))
	must(t, c.call("fs/createDirectory", codexArgs{"path": dir}, nil))
	rounds := 3
	if os.Getenv(EnvSoak) != "" {
		rounds = 300
	}
	for i := range rounds {
		id := fmt.Sprint("p", i)
		args := startArgs(id, "echo started >>"+dir+"/"+id+"; while read l; do echo got:$l; done; exit 4", "pipeStdin", true)
		c.lose("process/start", args)
		c.askAgain("process/start", args, -32600)
		p := c.track(id)
		write := codexArgs{"processId": id, "chunk": base64Of("hello\n"), "writeId": "1"}
		c.lose("process/write", write)
		c.askAgain("process/write", write)
		must(t, c.receiveUntil(func() bool { return len(p.out["stdout"]) > 0 }))
		c.lose("process/read", codexArgs{"processId": id, "afterSeq": 0})
		c.askAgain("process/read", codexArgs{"processId": id, "afterSeq": 0})
		c.lose("process/signal", codexArgs{"processId": "none", "signal": "interrupt"})
		if i == 0 || rounds > 3 {
			cutFiles(c, dir+"/files")
		}
		c.lose("process/terminate", codexArgs{"processId": id})
		c.askAgain("process/terminate", codexArgs{"processId": id})
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

// lose sends a request and cuts the connection.
func (c *codexClient) lose(method string, params any) {
	c.t.Helper()
	if _, err := c.request(method, params); err != nil {
		c.t.Fatal(err)
	}
	if err := c.connect(never); err != nil {
		c.t.Fatal(err)
	}
}

// askAgain sends a request again and returns the result; codes are of errors that say that the
// first one was executed.
func (c *codexClient) askAgain(method string, params any, codes ...int) (result codexArgs) {
	c.t.Helper()
	err := c.call(method, params, &result)
	var refused *codexError
	expected := errors.As(err, &refused) && slices.Contains(codes, refused.Code)
	if err != nil && !expected {
		c.t.Errorf("%s: %v", method, err)
	}
	return result
}

// cutFiles loses the answer of each method that is not about a process, and sends it again.
func cutFiles(c *codexClient, dir string) {
	c.t.Helper()
	at := func(name string) string { return dir + "/" + name }
	open := func(id, name, mode string) codexArgs {
		return codexArgs{"handleId": id, "path": at(name), "mode": mode}
	}
	for _, step := range []struct {
		method string
		params codexArgs
		field  string // of the result
		want   any
		codes  []int     // say that the first one was executed
		before codexArgs // an fs/open on the connection of each request: handles end with theirs
	}{
		{"fs/createDirectory", codexArgs{"path": dir, "recursive": false}, "", nil, []int{-32603}, nil},
		{"fs/writeFile", codexArgs{"path": at("a"), "dataBase64": base64Of("content")}, "", nil, nil, nil},
		{"fs/readFile", codexArgs{"path": at("a")}, "dataBase64", base64Of("content"), nil, nil},
		{"fs/getMetadata", codexArgs{"path": at("a")}, "size", 7.0, nil, nil},
		{"fs/canonicalize", codexArgs{"path": dir + "/../" + path.Base(dir) + "/a"}, "path", at("a"), nil, nil},
		{"fs/copy", codexArgs{"sourcePath": at("a"), "destinationPath": at("b"), "recursive": false}, "", nil, nil, nil},
		{"fs/readDirectory", codexArgs{"path": dir}, "", nil, nil, nil},
		{"fs/walk", codexArgs{"path": dir, "options": codexArgs{"maxDepth": 2, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": false}}, "truncated", false, nil, nil},
		{"fs/open", open("h", "b", "read"), "handleId", "h", nil, nil},
		{"fs/readBlock", codexArgs{"handleId": "r", "offset": 3, "len": 10}, "chunk", base64Of("tent"), nil, open("r", "b", "read")},
		{"fs/writeBlock", codexArgs{"handleId": "w", "offset": 0, "chunk": base64Of("written")}, "", nil, nil, open("w", "w", "replace")},
		{"fs/close", codexArgs{"handleId": "c"}, "", nil, nil, open("c", "b", "read")},
		{"fs/readFile", codexArgs{"path": at("w")}, "dataBase64", base64Of("written"), nil, nil},
		{"fs/watchMissing", codexArgs{"watchId": 1, "missing": []string{at("none")}, "present": nil}, "watching", true, nil, nil},
		{"fs/remove", codexArgs{"path": at("b"), "recursive": false, "force": false}, "", nil, []int{-32004}, nil},
		{"fs/remove", codexArgs{"path": dir}, "", nil, nil, nil},
		{"environment/info", nil, "", nil, nil, nil},
		{"environment/status", nil, "status", "ready", nil, nil},
		{"http/request", codexArgs{"method": "GET", "url": "http://127.0.0.1:9/", "headers": []any{}, "requestId": "r", "redirectPolicy": "stop"}, "", nil, []int{-32603}, nil},
	} {
		opened := func() {
			if step.before != nil {
				c.askAgain("fs/open", step.before)
			}
		}
		opened()
		c.lose(step.method, step.params)
		opened()
		if got := c.askAgain(step.method, step.params, step.codes...); step.field != "" && got[step.field] != step.want {
			c.t.Errorf("%s: %s is %v, want %v", step.method, step.field, got[step.field], step.want)
		}
	}
}

// What a process writes while no client is attached arrives after the resume. A soak has more
// output, also spread over 2 s and 60 s.
func TestCodexBacklog(t *testing.T) {
	t.Parallel()
	a := api(t)
	pieces := []codexBacklog{{12 << 20, 1, "0"}}
	if os.Getenv(EnvSoak) != "" {
		pieces = []codexBacklog{{100 << 20, 1, "0"}, {5 << 20, 20, "0.1"}, {5 << 20, 20, "3"}}
	}
	for _, b := range pieces {
		t.Run(b.pause, func(t *testing.T) {
			t.Parallel()
			box := a.Create(t)
			c := newCodexClient(t, "/codex/"+box.ID+"?detach_timeout=600", a)
			must(t, c.connect(never))
			p := b.start(c, box.ID)
			c.drop()
			b.begin(t, a, box.ID)
			b.ended(t, a, box.ID)
			c.untilClosed(never)
			b.check(t, p)
		})
	}
}

// codexBacklog is output that is written while no client is attached: pieces of a size, with a
// pause after each.
type codexBacklog struct {
	size, pieces int
	pause        string // in seconds
}

func (b *codexBacklog) stop(box string) string { return "/tmp/codex-backlog-" + box }

// start starts the process, which waits for begin.
func (b *codexBacklog) start(c *codexClient, box string) *codexProcess {
	const script = `f=$(mktemp); while [ ! -e %s ]; do sleep 0.05; done; for i in $(seq %d); do head -c %d /dev/urandom; sleep %s; done | tee $f; sha256sum <$f >&2; rm $f; exit 6`
	return c.start("backlog", fmt.Sprintf(script, b.stop(box), b.pieces, b.size, b.pause))
}

// begin lets it write.
func (b *codexBacklog) begin(t *testing.T, a *rig.API, box string) {
	t.Helper()
	a.RPC(t, box, "/filesystem.Filesystem/MakeDir", map[string]any{"path": b.stop(box)})
}

// ended waits for its end.
func (b *codexBacklog) ended(t *testing.T, a *rig.API, box string) {
	t.Helper()
	if !rig.Poll(4*codexTimeout, func() bool {
		ans := a.Do(t, http.MethodGet, "/v1/processes?sandbox="+box+"&state=running", nil)
		return ans.Status == http.StatusOK && !bytes.Contains(ans.Body, []byte("urandom"))
	}) {
		t.Fatal("the process does not end while no client is attached")
	}
}

// check fails the test unless all of the output arrived.
func (b *codexBacklog) check(t *testing.T, p *codexProcess) {
	t.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256(p.out["stdout"]))
	if len(p.out["stdout"]) != b.size*b.pieces || !strings.HasPrefix(string(p.out["stderr"]), sum) || p.exits != 1 || p.code != 6 {
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
