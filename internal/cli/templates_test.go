package cli

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/part"
)

// shelf is a fake gateway that stores templates.
type shelf struct {
	t *testing.T

	mu       sync.Mutex
	parts    map[string][]byte
	puts     int
	refuse   int // number of requests to fail, as a gateway without NATS does
	manifest map[string][]byte
}

func newShelf(t *testing.T) (*shelf, *httptest.Server) {
	t.Helper()
	s := &shelf{t: t, parts: map[string][]byte{}, manifest: map[string][]byte{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, srv
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 && r.Method == http.MethodPut {
		s.refuse--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	sum, isPart := strings.CutPrefix(r.URL.Path, "/v1/store/templates/parts/")
	name := strings.TrimPrefix(r.URL.Path, "/v1/store/templates/")
	switch {
	case isPart && r.Method == http.MethodHead && s.parts[sum] == nil:
		w.WriteHeader(http.StatusNotFound)
	case isPart && r.Method == http.MethodPut:
		s.puts++
		s.parts[sum] = body
		w.WriteHeader(http.StatusCreated)
	case isPart:
	case r.Method == http.MethodPut:
		m, id, err := template.Decode(body)
		if err != nil {
			s.t.Errorf("manifest: %v", err)
		}
		s.manifest[name] = body
		name, tag, _ := strings.Cut(name, ":")
		json.NewEncoder(w).Encode(client.Template{Name: name, Tag: tag, ID: string(id), Files: m.Files, Size: m.Size})
	case r.Method == http.MethodGet && s.manifest[name] != nil:
		m, id, err := template.Decode(s.manifest[name])
		if err != nil {
			s.t.Errorf("manifest: %v", err)
		}
		name, tag, _ := strings.Cut(name, ":")
		json.NewEncoder(w).Encode(client.Template{Name: name, Tag: tag, ID: string(id), Files: m.Files, Size: m.Size, Hosts: []string{"h1"}})
	case r.Method == http.MethodDelete && s.manifest[name] == nil:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"message":"template not found"}`)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	default:
		io.WriteString(w, `{"templates":[{"name":"app","tag":"v1","id":"`+strings.Repeat("ab", 32)+`","size":5242880,"hosts":["h1","h2"]}]}`)
	}
}

func run(t *testing.T, srv *httptest.Server, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"MILLRACE_URL": srv.URL, "MILLRACE_API_KEY": "k"}
	all := Commands(command.Config{In: strings.NewReader(""), Out: &out, Err: &errs, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }})
	for _, c := range all {
		if c.Name() == args[0] {
			c.SetArgs(args[1:])
			c.SetOut(&out)
			c.SetErr(&errs)
			c.SilenceErrors = true
			err = c.ExecuteContext(t.Context())
			return out.String(), errs.String(), err
		}
	}
	t.Fatalf("command %s does not exist", args[0])
	return "", "", nil
}

// rootTar writes a tar of a root file system of about size bytes and returns its path.
func rootTar(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	if err := w.WriteHeader(&tar.Header{Name: "app", Mode: 0o644, Size: int64(len(body))}); err != nil {
		t.Fatal(err)
	}
	w.Write(body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTemplateImportUploadsMissingParts(t *testing.T) {
	s, srv := newShelf(t)
	s.refuse = 1
	source := rootTar(t, 2*template.PartSize)
	out, _, err := run(t, srv, "template", "import", source, "app:v1", "-e", "A=1", "--workdir", "/srv", "--user", "root")
	if err != nil || !strings.HasPrefix(out, "app:v1 ") {
		t.Fatalf("%q, %v", out, err)
	}
	m, _, err := template.Decode(s.manifest["app:v1"])
	if err != nil || m.Env["A"] != "1" || m.Workdir != "/srv" || m.User != "root" || m.Arch != runtime.GOARCH {
		t.Errorf("manifest %+v, %v", m, err)
	}
	p, err := part.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i, sum := range m.Parts {
		if _, err := p.Unpack(s.parts[string(sum)], sum, m.Part(i)); err != nil {
			t.Errorf("part %d: %v", i, err)
		}
	}
	delete(s.parts, string(m.Parts[0]))
	sent := s.puts
	if _, _, err := run(t, srv, "template", "import", source, "app:v2"); err != nil {
		t.Fatal(err)
	}
	if s.puts != sent+1 {
		t.Errorf("uploaded %d parts, want the missing one", s.puts-sent)
	}
}

func TestTemplateImportRejectsInvalidInput(t *testing.T) {
	s, srv := newShelf(t)
	for name, args := range map[string][]string{
		"a reserved name":           {rootTar(t, 16), "base"},
		"an invalid name":           {rootTar(t, 16), "A/B"},
		"a missing file":            {"/nowhere/at-all.tar", "app"},
		"more than the maximum":     {rootTar(t, 1<<20), "app", "--max-size", "1000"},
		"a variable without a name": {rootTar(t, 16), "app", "-e", "=1"},
	} {
		if out, _, err := run(t, srv, append([]string{"template", "import"}, args...)...); err == nil {
			t.Errorf("%s: %q", name, out)
		}
	}
	if _, _, err := run(t, srv, "template", "build", "nonesuch"); err == nil || !strings.Contains(err.Error(), "standard") {
		t.Errorf("an unknown recipe: %v", err)
	}
	if len(s.manifest) > 0 {
		t.Errorf("created %v", s.manifest)
	}
}

func TestTemplateList(t *testing.T) {
	_, srv := newShelf(t)
	out, _, err := run(t, srv, "template", "ls")
	if err != nil || !strings.Contains(out, "host") || !strings.Contains(out, "app   v1   abababababab  5.0 MiB") || !strings.Contains(out, "h1,h2") {
		t.Errorf("%v\n%s", err, out)
	}
	_, said, err := run(t, srv, "template", "rm", "other")
	if err == nil || !strings.Contains(said, "template not found") {
		t.Errorf("rm: %q, %v", said, err)
	}
}
