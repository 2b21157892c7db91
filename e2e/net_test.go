package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// server is an HTTP server for a sandbox, written in Perl, which every Debian has. It
// responds to /echo with the body, to /big/N with N bytes, to /cut with a truncated
// response, and switches to an echo protocol on /switch.
const server = `
use IO::Socket::INET;
$SIG{CHLD} = 'IGNORE';
my $s = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', LocalPort => $ARGV[0], ReuseAddr => 1) or die "listen: $!";
$| = 1; print "ready\n";
while (1) {
	my $c = $s->accept or next;
	if (fork) { close $c; next }
	$c->autoflush(1);
	while (1) {
		my ($path, $len) = ('', 0);
		while (my $l = <$c>) {
			$path = $1 if $l =~ m{^[A-Z]+ (\S+) HTTP};
			$len = $1 if $l =~ m{^content-length: (\d+)}i;
			last if $l eq "\r\n";
		}
		exit if $path eq '';
		if ($path eq '/switch') {
			print $c "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
			while (sysread $c, my $b, 65536) { print $c $b }
			exit;
		}
		if ($path eq '/cut') { print $c "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"; exit }
		my $body = "hello from $ENV{E2B_SANDBOX_ID}";
		if ($path eq '/echo') { read $c, $body, $len }
		if ($path =~ m{^/big/(\d+)}) {
			print $c "HTTP/1.1 200 OK\r\nContent-Length: $1\r\n\r\n";
			my ($left, $b) = ($1, 'x' x 65536);
			while ($left > 0) { my $n = $left < 65536 ? $left : 65536; print $c substr($b, 0, $n) or exit; $left -= $n }
			next;
		}
		print $c "HTTP/1.1 200 OK\r\nContent-Length: " . length($body) . "\r\n\r\n" . $body;
	}
}`

// servePort runs the server in a sandbox with Debian's programs.
func servePort(t testing.TB, a *rig.API, box rig.Sandbox) (host string) {
	t.Helper()
	p := debian()
	return p.servePort(t, a, box)
}

// servePort runs the server in a sandbox and returns when it listens. Its host
// label names a free port, which matters where sandboxes share the host's network.
func (p *programs) servePort(t testing.TB, a *rig.API, box rig.Sandbox) (host string) {
	t.Helper()
	addr, err := rig.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	lines := a.Commands(t, box.ID, p.serve, "timeout_ms", 0, "envs", map[string]string{"SERVER": p.server, "PORT": port})
	t.Cleanup(lines.Close)
	for output := ""; ; {
		l, err := lines.Next()
		if err != nil {
			t.Fatalf("the server ended: %v\n%s", err, output)
		}
		output += l.Raw + "\n"
		if strings.Contains(l.Raw, "ready") {
			return port + "-" + box.ID + ".localhost"
		}
	}
}

func visit(ctx context.Context, a *rig.API, method, host, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Host = host
	return http.DefaultClient.Do(req)
}

// answer returns a port's complete response.
func answer(t testing.TB, a *rig.API, method, host, path string, body []byte) (int, string) {
	t.Helper()
	res, err := visit(t.Context(), a, method, host, path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return res.StatusCode, string(b)
}

func TestPortsOfSandboxesAreServed(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	host := servePort(t, a, box)
	if status, got := answer(t, a, "GET", host, "/", nil); status != 200 || got != "hello from "+box.ID {
		t.Errorf("got %d %q", status, got)
	}
	port, _, _ := strings.Cut(host, "-")
	byHeader := a.Do(t, "GET", "/", nil, "E2b-Sandbox-Id", box.ID, "E2b-Sandbox-Port", port)
	if string(byHeader.Body) != "hello from "+box.ID {
		t.Errorf("by the SDKs' headers: %v", byHeader)
	}
	want := make([]byte, 20<<20)
	rand.Read(want)
	if _, got := answer(t, a, "POST", host, "/echo", want); got != string(want) {
		t.Errorf("received %d bytes of %d", len(got), len(want))
	}
	if _, got := answer(t, a, "GET", host, "/big/5000000", nil); got != strings.Repeat("x", 5_000_000) {
		t.Errorf("%d bytes, want 5000000", len(got))
	}
	res, err := visit(t.Context(), a, "GET", host, "/cut", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(res.Body); string(got) != "half" || err == nil {
		t.Errorf("a truncated response: %q, %v", got, err)
	}
	res.Body.Close()
	for host, want := range map[string]string{
		"9-" + box.ID + ".localhost": fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox is running but port is not open","port":9,"code":502}`, box.ID),
		port + "-i404.localhost":     `{"sandboxId":"i404","message":"The sandbox was not found","code":502}`,
	} {
		if status, got := answer(t, a, "GET", host, "/", nil); status != 502 || got != want {
			t.Errorf("%s: %d %s, want %s", host, status, got, want)
		}
	}
}

func TestPortsSwitchProtocols(t *testing.T) {
	t.Parallel()
	a := api(t)
	host := servePort(t, a, a.Create(t))
	c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "GET /switch HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", host)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	want := make([]byte, 5<<20)
	rand.Read(want)
	go c.Write(want)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A client that reads from a port gets an error when the sandbox ends.
func TestPortsAreCutWhenTheSandboxEnds(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	host := servePort(t, a, box)
	res, err := visit(t.Context(), a, "GET", host, "/big/100000000000", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 1<<20); err != nil {
		t.Fatal(err)
	}
	a.Kill(t, box.ID)
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("a truncated response looks complete")
	}
	if status, got := answer(t, a, "GET", host, "/", nil); status != 502 || !strings.Contains(got, "not found") {
		t.Errorf("after its end: %d %s", status, got)
	}
}

// Egress reaches only addresses that the operator and the sandbox allow. Metadata addresses
// are checked at the sandbox's proxy: nothing is sent to them. Covers T-95.
func TestEgress(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("without isolation sandboxes use the host's network")
	}
	world := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the world, ", r.URL.Path) })}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go world.Serve(ln)
	t.Cleanup(func() { world.Close() })
	up := rig.NewUp(t, rig.Options{Args: []string{"--egress", "internet", "--egress-allow", "127.0.0.1"}})
	// get requests a URL from the proxy, and returns the status and the last line.
	get := func(box rig.Sandbox, url string) string {
		t.Helper()
		script := `exec 3<>/dev/tcp/127.0.0.1/3128 || exit 9; printf 'GET %s HTTP/1.0\r\n\r\n' "$URL" >&3; read -r _ status _ <&3; last=$(tail -n 1 <&3); echo "$status $last"`
		lines := up.Commands(t, box.ID, `bash -c "$SCRIPT" 2>/dev/null || echo no way out`, "envs", map[string]string{"SCRIPT": script, "URL": url}).All(t)
		return rig.Output(lines, "stdout")
	}
	there := "http://" + ln.Addr().String() + "/x"
	const reached, closed = "200 the world, /x\n", "no way out\n"

	open := up.Create(t, "allow_internet_access", true)
	if got := get(open, there); got != reached {
		t.Errorf("got %q", got)
	}
	if got := rig.Output(up.Commands(t, open.ID, "echo $http_proxy $HTTPS_PROXY").All(t), "stdout"); got != "http://127.0.0.1:3128 http://127.0.0.1:3128\n" {
		t.Errorf("environment %q", got)
	}
	for _, host := range []string{"169.254.169.254", "[::ffff:a9fe:a9fe]", "2852039166", "0xa9fea9fe", "[fd00:ec2::254]", "10.0.0.1", "127.0.0.2", "[::1]"} {
		if got := get(open, "http://"+host+"/latest/meta-data/"); !strings.HasPrefix(got, "403 ") && !strings.HasPrefix(got, "400 ") {
			t.Errorf("%s: %q", host, got)
		}
	}
	none := up.Create(t, "allow_internet_access", false)
	if got := get(none, there); got != closed {
		t.Errorf("a sandbox without network: %q", got)
	}
	set := func(body string) {
		t.Helper()
		up.Want(t, http.StatusNoContent, http.MethodPut, "/sandboxes/"+none.ID+"/network", body)
	}
	await := func(want string) {
		t.Helper()
		var got string
		if !rig.Poll(10*time.Second, func() bool { got = get(none, there); return got == want }) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	set(`{"allow_internet_access":false,"allowOut":["127.0.0.1"]}`)
	await(reached)
	set(`{"allow_internet_access":false,"allowOut":["a.test"]}`)
	await("403 millrace: the sandbox may not reach 127.0.0.1\n")
	set(`{"allow_internet_access":false}`)
	await(closed)
}

func TestPrivatePorts(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t, "secure", true, "network", map[string]any{"allowPublicTraffic": false})
	host := servePort(t, a, box)
	if status, got := answer(t, a, "GET", host, "/", nil); status != 403 || !strings.Contains(got, "Token header 'e2b-traffic-access-token' is missing") {
		t.Errorf("without a token: %d %s", status, got)
	}
	var made struct {
		Token string `json:"trafficAccessToken"`
	}
	a.Want(t, 200, "POST", "/sandboxes/"+box.ID+"/connect", `{"timeout":60}`).Decode(t, &made)
	visit := func(host, path, token string) int {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), "GET", a.URL+path, nil)
		req.Host = host
		req.Header.Set("E2b-Traffic-Access-Token", token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if status := visit(host, "/", made.Token); status != 200 {
		t.Errorf("with the token %q: %d", made.Token, status)
	}
	// SDKs send this token for requests without an access token.
	_, domain, _ := strings.Cut(host, ".")
	for _, port := range []string{"49999", "49983"} {
		of := port + "-" + box.ID + "." + domain
		if without, with := visit(of, "/contexts", ""), visit(of, "/contexts", made.Token); without != 403 || with != 200 {
			t.Errorf("contexts by port %s: %d without a token, %d with it", port, without, with)
		}
	}
}

// BenchmarkPort measures sequential requests, and bytes per second, through gateway, NATS,
// host and shim.
func BenchmarkPort(b *testing.B) {
	a := api(b)
	host := servePort(b, a, a.Create(b))
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			answer(b, a, "GET", host, "/", nil)
		}
	})
	b.Run("bytes", func(b *testing.B) {
		const size = 32 << 20
		b.SetBytes(size)
		for b.Loop() {
			if _, got := answer(b, a, "GET", host, fmt.Sprintf("/big/%d", size), nil); len(got) != size {
				b.Fatalf("%d bytes", len(got))
			}
		}
	})
}

// Without a domain, SDKs use host names below e2b.app. curl, like browsers, resolves names
// below localhost by itself.
func TestHostNamesResolveToUp(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{})
	var made struct {
		ID     string `json:"sandboxID"`
		Domain string `json:"domain"`
	}
	u.Want(t, 201, "POST", "/v2/sandboxes", `{"templateID":"base","timeout":300}`).Decode(t, &made)
	_, port, _ := strings.Cut(strings.TrimPrefix(u.URL, "http://"), ":")
	if made.Domain != "localhost:"+port {
		t.Fatalf("the domain is %q, up listens at %s", made.Domain, u.URL)
	}
	out, err := exec.CommandContext(t.Context(), "curl", "-sS", "http://3000-"+made.ID+"."+made.Domain+"/").CombinedOutput()
	if !strings.Contains(string(out), "The sandbox is running but port is not open") || err != nil {
		t.Errorf("curl: %s, %v", out, err)
	}
}
