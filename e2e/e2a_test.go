package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// docsReader is a reader of docs/e2a.md with curl and millrace.
type docsReader struct {
	text string
	env  []string
}

// follow runs the commands of the n-th block of a section and returns what each of them prints.
func (r *docsReader) follow(t *testing.T, section string, n int, env ...string) []string {
	t.Helper()
	_, text, ok := strings.Cut(r.text, "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/e2a.md has no section %s", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) <= n {
		t.Fatalf("section %s has %d blocks", section, len(blocks))
	}
	var all []string
	for _, line := range strings.Split(strings.TrimSpace(blocks[n][1]), "\n") {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", line)
		cmd.Env = slices.Concat(r.env, env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		all = append(all, string(out))
	}
	return all
}

// docs/e2a.md, word for word: from an address to a sandbox, with up's own mailbox, and the audit
// trail (E-255, E-262, E-268).
func TestE2ADocs(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	raw, err := os.ReadFile("../docs/e2a.md")
	must(t, err)
	bin := t.TempDir()
	must(t, os.Symlink(rig.Binary(t), filepath.Join(bin, "millrace")))
	r := &docsReader{string(raw), []string{"API=" + u.URL, "MILLRACE_URL=" + u.URL, "MILLRACE_API_KEY=" + u.Key, "PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	const section = "From an address to a sandbox"
	if out := r.follow(t, section, 0); out[0] != `{"message":"OTP sent"}` {
		t.Fatalf("%s", out)
	}
	var code []string
	mail := regexp.MustCompile(`mail to you@example\.com [\s\S]*?Your code is (\d{6})\.`)
	if !rig.Poll(time.Minute, func() bool { code = mail.FindStringSubmatch(u.Log()); return code != nil }) {
		t.Fatal("up printed no mail")
	}
	var made struct {
		TenantID string `json:"tenant_id"`
		APIKey   string `json:"api_key"`
	}
	must(t, json.Unmarshal([]byte(r.follow(t, section, 1, "CODE="+code[1])[0]), &made))
	out := r.follow(t, section, 2, "KEY="+made.APIKey)
	if len(out) != 2 || !strings.Contains(out[0], `"tenant_id":"`+made.TenantID+`"`) || !strings.Contains(out[1], `"sandboxID":"i`) {
		t.Fatalf("%s", out)
	}
	var sandbox struct{ SandboxID string }
	must(t, json.Unmarshal([]byte(out[1]), &sandbox))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, u.URL+"/sandboxes/"+sandbox.SandboxID, nil)
	must(t, err)
	req.Header.Set("X-Api-Key", made.APIKey)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", resp.StatusCode)
	}
	if a := postE2A(t, u.URL, "/v1/api-keys", ""); a.code != 401 {
		t.Fatalf("%+v", a)
	}
	out = r.follow(t, "Audit trail", 0)
	if !strings.Contains(out[0], "unauthenticated") || !strings.Contains(out[1], "the audit trail is intact: ") {
		t.Errorf("%s", out)
	}
}

type e2aAnswer struct {
	code int
	body string
}

// postE2A sends a request without a credential. The code is 0 if no response arrives.
func postE2A(t *testing.T, url, path, body string) e2aAnswer {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return e2aAnswer{}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return e2aAnswer{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return e2aAnswer{}
	}
	return e2aAnswer{resp.StatusCode, string(raw)}
}

// mailServer is an SMTP server that sends the text of each mail to mails. The first connection
// is held and gets no response.
type mailServer struct {
	url   string
	held  chan struct{}
	mails chan string
}

func newMailServer(t *testing.T) *mailServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	m := &mailServer{"smtp://" + ln.Addr().String(), make(chan struct{}), make(chan string, 100)}
	go func() {
		for first := true; ; first = false {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if first {
				close(m.held)
				defer conn.Close()
				continue
			}
			go m.serve(conn)
		}
	}()
	return m
}

func (m *mailServer) serve(conn net.Conn) {
	defer conn.Close()
	fmt.Fprint(conn, "220 localhost\r\n")
	for in := bufio.NewScanner(conn); in.Scan(); {
		switch command, _, _ := strings.Cut(strings.ToUpper(in.Text()), " "); command {
		case "DATA":
			fmt.Fprint(conn, "354 go on\r\n")
			var text strings.Builder
			for in.Scan() && in.Text() != "." {
				text.WriteString(in.Text() + "\n")
			}
			m.mails <- text.String()
			fmt.Fprint(conn, "250 stored\r\n")
		case "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
			return
		default:
			fmt.Fprint(conn, "250 localhost\r\n")
		}
	}
}

// E-258, E-264, E-273: kill -9 between the steps of signing up leaves no second tenant and mail, no
// code that can be used twice, and no lost count.
func TestSignUpSurvivesKills(t *testing.T) {
	t.Parallel()
	m := newMailServer(t)
	u := rig.NewUp(t, rig.Options{Args: []string{"--smtp", m.url, "--mail-from", "millrace@example.com"}})
	const signUp = `{"email":"you@example.com"}`
	cut := make(chan e2aAnswer, 1)
	go func() { cut <- postE2A(t, u.URL, "/v1/tenants", signUp) }()
	<-m.held // the code is stored, and its mail is not sent
	u.Kill9()
	must(t, u.Restart())
	if a := <-cut; a.code != 0 {
		t.Errorf("the killed gateway answered %+v", a)
	}
	type tenant struct {
		TenantID string `json:"tenant_id"`
		APIKey   string `json:"api_key"`
	}
	verify := func(code string) (out tenant, a e2aAnswer) {
		a = postE2A(t, u.URL, "/v1/tenants/verify", `{"email":"you@example.com","code":"`+code+`"}`)
		if a.code == 200 {
			must(t, json.Unmarshal([]byte(a.body), &out))
		}
		return out, a
	}
	code := func() string {
		t.Helper()
		if a := postE2A(t, u.URL, "/v1/tenants", signUp); a.code != 200 {
			t.Fatalf("sign up: %+v", a)
		}
		got := regexp.MustCompile(`code is (\d{6})\.`).FindStringSubmatch(<-m.mails)
		if got == nil {
			t.Fatal("a mail without a code")
		}
		return got[1]
	}
	used := code()
	first, a := verify(used)
	if a.code != 200 {
		t.Fatalf("verify: %+v", a)
	}
	u.Kill9()
	must(t, u.Restart())
	if _, a := verify(used); a.code != 401 {
		t.Errorf("a used code after a kill: %+v", a)
	}
	again, a := verify(code())
	if a.code != 200 || again.TenantID != first.TenantID || again.APIKey == first.APIKey {
		t.Errorf("again: %+v, first %+v", a, first)
	}
	if a := postE2A(t, u.URL, "/v1/tenants", signUp); a.code != 429 {
		t.Errorf("the fourth code in an hour: %+v", a)
	}
	if n := len(m.mails); n != 0 {
		t.Errorf("%d more mails", n)
	}
}
