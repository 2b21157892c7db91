package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

// repository is the root of the repository.
const repository = "../.."

const composeKey = "e2b_00112233445566778899aabbccddeeff00112233"

// service is the command line and environment of a service in docker-compose.yml.
type service struct {
	name string
	args []string
	env  map[string]string
}

// compose returns the services of docker-compose.yml. It parses only the few forms that
// the file uses.
func compose(t *testing.T) []service {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(b), "\nservices:\n")
	if !ok {
		t.Fatal("no services")
	}
	env := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ +(MILLRACE_\w+): "?([^"\n]*)"?$`).FindAllStringSubmatch(string(b), -1) {
		env[m[1]] = m[2]
	}
	var all []service
	head := regexp.MustCompile(`(?m)^  ([a-z0-9-]+):$`)
	command := regexp.MustCompile(`(?m)^    command: (\[.*\])$`)
	at := head.FindAllStringSubmatchIndex(body, -1)
	for i, m := range at {
		end := len(body)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		c := command.FindStringSubmatch(body[m[0]:end])
		if c == nil {
			continue
		}
		s := service{name: body[m[2]:m[3]], env: map[string]string{}}
		for _, word := range strings.Split(strings.Trim(c[1], "[]"), ", ") {
			s.args = append(s.args, strings.Trim(word, `"`))
		}
		for k, v := range env {
			if s.args[0] != "nats" || k == "MILLRACE_NATS_TOKEN" {
				s.env[k] = v
			}
		}
		all = append(all, s)
	}
	return all
}

func TestComposeHasTheDocumentedTopology(t *testing.T) {
	got := map[string]int{}
	for _, s := range compose(t) {
		got[s.args[0]]++
		c, rest, err := newRoot(command.Config{LookupEnv: os.LookupEnv}).Find(s.args)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if err := fromEnv(c.Flags(), func(k string) string { return s.env[k] }); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	for role, n := range map[string]int{"nats": 3, "gateway": 2, "scheduler": 1, "reaper": 1, "hostd": 2} {
		if got[role] != n {
			t.Errorf("%d of %s, want %d", got[role], role, n)
		}
	}
}

// plain rewrites a service for this machine: host names and ports become free ports of
// 127.0.0.1, and directories become subdirectories of dir.
type plain struct {
	t     *testing.T
	dir   string
	ports map[string]string // addresses by NAME:PORT
}

// address returns a free local address for NAME:PORT. Its port lies below the range of
// ephemeral ports, which the kernel may assign to services started meanwhile.
func (p *plain) address(name string) string {
	if a, ok := p.ports[name]; ok {
		return a
	}
	for range 100 {
		a := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(20000)))
		ln, err := net.Listen("tcp", a)
		if err != nil {
			continue
		}
		ln.Close()
		if slices.Contains(slices.Collect(maps.Values(p.ports)), a) {
			continue
		}
		p.ports[name] = a
		return a
	}
	p.t.Fatal("found no free port")
	return ""
}

func (p *plain) rewrite(s *service) {
	named := regexp.MustCompile(`(nats-\d):(\d+)`)
	text := func(v string) string {
		v = strings.ReplaceAll(v, "0.0.0.0:", s.name+":")
		v = named.ReplaceAllStringFunc(v, p.address)
		if strings.HasPrefix(v, "gateway-") {
			v = p.address(v)
		}
		v = strings.ReplaceAll(v, "/run/secrets/master-key", filepath.Join(p.dir, "master.key"))
		return strings.ReplaceAll(v, "/var/lib/millrace", filepath.Join(p.dir, s.name))
	}
	for i := range s.args {
		s.args[i] = text(s.args[i])
	}
	for k, v := range s.env {
		s.env[k] = text(v)
	}
	switch s.args[0] {
	case "hostd":
		s.args = append(s.args, "--driver", "direct")
	case "gateway":
		s.env["MILLRACE_API_KEY"] = composeKey
	}
}

// The services of docker-compose.yml work together: commands on each host that were
// started through one gateway are read through the other.
func TestComposedServicesWorkTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("starting a cluster takes seconds")
	}
	p := &plain{t: t, dir: t.TempDir(), ports: map[string]string{}}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	nats, stopNATS := context.WithCancel(context.WithoutCancel(t.Context()))
	var servers, services sync.WaitGroup
	var logs syncBuffer
	t.Cleanup(func() {
		cancel(errInterrupted) // hosts end with their sandboxes
		services.Wait()
		stopNATS()
		servers.Wait()
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	for _, s := range compose(t) {
		p.rewrite(&s)
		life, group := ctx, &services
		if s.args[0] == "nats" {
			life, group = nats, &servers
		}
		group.Go(func() {
			c := newRoot(command.Config{In: strings.NewReader(""), Out: &logs, Err: &logs, LookupEnv: func(k string) (v string, ok bool) { v, ok = s.env[k]; return }})
			c.SetArgs(s.args)
			if err := c.ExecuteContext(life); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		})
	}
	one, two := "http://"+p.address("gateway-1:7300"), "http://"+p.address("gateway-2:7300")
	client := func(url string, args ...string) (string, error) {
		out, errOut, err := root(ctx, map[string]string{"MILLRACE_URL": url, "MILLRACE_API_KEY": composeKey, "HOME": p.dir}, args...)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errOut)
		}
		return out, err
	}
	for _, url := range []string{one, two} {
		awaitHosts(t, func() (string, error) { return client(url, "hosts", "-o", "json") }, 2)
	}
	for name, command := range healthChecks(t) {
		port := map[string]string{"nats": "4222", "gateway": "7300"}[name]
		for at, healthy := range map[string]bool{p.address(name + "-1:" + port): true, p.address("unused-1:" + port): false} {
			if out, err := healthCheck(t, command, port, at); (err == nil) != healthy {
				t.Errorf("health check of %s at %s: %v, healthy %v: %s", name, at, err, healthy, out)
			}
		}
	}
	for i := range 4 { // two on each host
		sbx, err := client(one, "sandbox", "create")
		if err != nil {
			t.Fatalf("create %d: %v", i, err)
		}
		id, err := client(one, "run", "-d", "-s", strings.TrimSpace(sbx), "seq 3; exit 4")
		if err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
		out, err := client(two, "attach", "-n", strings.TrimSpace(id))
		if code, _ := output.ExitCode(err); code != 4 || out != "1\n2\n3\n" {
			t.Errorf("attach on the other gateway: exit %d, %q, %v", code, out, err)
		}
	}
	var hosts []struct{ Sandboxes int }
	out, err := client(two, "hosts", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &hosts)
	}
	if err != nil || len(hosts) != 2 {
		t.Fatalf("hosts: %s, %v", out, err)
	}
}

// healthChecks returns the commands of docker-compose.yml's health checks, by role.
func healthChecks(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^x-([a-z]+)-health: .*\n  test: \[CMD, (.*)\]$`).FindAllStringSubmatch(string(b), -1) {
		for _, word := range regexp.MustCompile(`'[^']*'|"[^"]*"|[^, ]+`).FindAllString(m[2], -1) {
			all[m[1]] = append(all[m[1]], strings.ReplaceAll(strings.Trim(word, `'"`), "$$", "$"))
		}
	}
	if len(all) != 2 {
		t.Fatalf("health checks: %v, want those of nats and gateway", all)
	}
	return all
}

// healthCheck runs a health check against address instead of its container's port.
func healthCheck(t *testing.T, command []string, port, address string) (string, error) {
	t.Helper()
	host, to, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]string, len(command))
	for i, word := range command {
		args[i] = strings.NewReplacer("127.0.0.1/"+port, host+"/"+to, "127.0.0.1:"+port, address).Replace(word)
	}
	if slices.Equal(args, command) {
		t.Fatalf("health check %q does not name port %s", command, port)
	}
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	return string(out), err
}

// awaitHosts polls until n hosts are alive.
func awaitHosts(t *testing.T, ask func() (string, error), n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := ask()
		if err == nil && strings.Count(out, `"state": "alive"`) == n {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("want %d alive hosts: %s, %v", n, out, err)
		}
	}
}

// The image and dist/ contain every helper program that millrace looks for beside itself,
// because the machines that run them may have no Go toolchain.
func TestImageHasTheHelperPrograms(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(repository, "services/hostd/internal/helperbin/program.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`Name: "(millrace-[a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(names) < 3 {
		t.Fatalf("programs: %v", names)
	}
	for file, form := range map[string]string{"Dockerfile": "/out/%s ", "Taskfile.yml": "dist/%s "} {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.Contains(string(text), fmt.Sprintf(form, name[1])) {
				t.Errorf("%s does not build %s", file, name[1])
			}
		}
	}
	image, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^COPY --from=build .*/out/` + name[1] + ` `).Match(image) {
			t.Errorf("the image lacks %s", name[1])
		}
	}
}
