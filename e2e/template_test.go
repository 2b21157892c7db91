package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// image writes an OCI layout: busybox, a file of some megabytes, and a layer above that
// removes a file.
func image(t *testing.T, ballast int) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed (Debian: busybox-static)")
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, ballast)
	rand.Read(noise)
	lower := []tar.Header{{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "bin/busybox", Mode: 0o755}, {Name: "app/marker"}, {Name: "app/gone"}, {Name: "app/noise"}}
	bodies := map[string]string{"bin/busybox": string(busybox), "app/marker": "made by hand\n", "app/gone": "x", "app/noise": string(noise)}
	for _, name := range strings.Fields("sh cat id echo ls sha256sum sleep") {
		lower = append(lower, tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"})
	}
	dir := t.TempDir()
	l := layout{t, dir}
	layers := []map[string]any{l.layer(lower, bodies), l.layer([]tar.Header{{Name: "app/.wh.gone"}}, nil)}
	conf := l.blob("application/vnd.oci.image.config.v1+json", encode(t, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Env": []string{"PATH=/bin", "GREETING=hello"}, "WorkingDir": "/app", "Labels": map[string]string{
			"ai.backend.service-ports": "web:http:8080,shell:pty:3000", "millrace.service.web": "exec busybox httpd -f -p 127.0.0.1:8080 -h /app",
		}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layers[0]["digest"], layers[1]["digest"]}},
	}))
	manifest := l.blob("application/vnd.oci.image.manifest.v1+json", encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": conf, "layers": layers,
	}))
	l.write("index.json", encode(t, map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}))
	l.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return dir
}

type layout struct {
	t   *testing.T
	dir string
}

func (l layout) write(name string, b []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l layout) blob(kind string, b []byte) map[string]any {
	l.t.Helper()
	sum := sha256.Sum256(b)
	digest := hex.EncodeToString(sum[:])
	l.write("blobs/sha256/"+digest, b)
	return map[string]any{"mediaType": kind, "digest": "sha256:" + digest, "size": len(b)}
}

func (l layout) layer(entries []tar.Header, bodies map[string]string) map[string]any {
	l.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := bodies[h.Name]
		if h.Size = int64(len(body)); h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			l.t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		l.t.Fatal(err)
	}
	return l.blob("application/vnd.oci.image.layer.v1.tar", b.Bytes())
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// client runs a client command as on a machine without a host.
func client(t *testing.T, a *rig.API, args ...string) string {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), args...)
	cmd.Env = append(os.Environ(), "MILLRACE_URL="+a.URL, "MILLRACE_API_KEY="+a.Key)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("millrace %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

type templateShown struct {
	ID    string   `json:"id"`
	Hosts []string `json:"hosts"`
}

func show(t *testing.T, a *rig.API, name string) (shown templateShown) {
	t.Helper()
	a.Want(t, 200, "GET", "/v1/store/templates/"+name, nil).Decode(t, &shown)
	return shown
}

// A template that is imported through one gateway works on all hosts, and a host that is
// killed during its download continues afterwards.
func TestTemplates(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("the driver does not support templates")
	}
	s := rig.NewSplit(t, rig.Topology{Gateways: 2, Hosts: 2})
	a := s.APIs[0]
	client(t, a, "template", "import", image(t, 1000), "app:v1")
	shown := show(t, s.APIs[1], "app:v1")
	if !rig.Poll(30*time.Second, func() bool { return len(show(t, a, "app:v1").Hosts) == 2 }) {
		t.Fatalf("it is on the hosts %v", show(t, a, "app:v1").Hosts)
	}

	t.Run("every host runs it", func(t *testing.T) {
		hosts := map[string]bool{}
		for _, name := range []string{"app:v1", shown.ID, shown.ID[:12]} {
			box := a.Create(t, "templateID", name)
			out := a.StartStream(t, box.ID, `echo $GREETING; cat /app/marker; ls -p /app | grep -v /; id -un; echo $PWD; test -e /usr/bin || echo own root`).All(t)
			if want := "hello\nmade by hand\nmarker\nnoise\nuser\n/app\nown root\n"; out.Stdout() != want {
				t.Errorf("%s: %q %q, want %q", name, out.Stdout(), out.Out["stderr"], want)
			}
			hosts[s.HostOf(t, a, box.ID)] = true
		}
		if len(hosts) != 2 {
			t.Errorf("three sandboxes ran on %v", hosts)
		}
	})
	t.Run("an unknown template is not found", func(t *testing.T) {
		for _, name := range []string{"app", "app:v2", "other", "standard", strings.Repeat("0", 64), "a/b", "../x"} {
			a.Want(t, 404, "POST", "/sandboxes", map[string]any{"templateID": name})
		}
		a.Want(t, 404, "GET", "/templates/aliases/other", nil)
		a.Want(t, 200, "GET", "/templates/aliases/app:v1", nil)
	})
	t.Run("a host is killed during the download", func(t *testing.T) {
		killedDuringDownload(t, s)
	})
	t.Run("it is removed while a sandbox uses it", func(t *testing.T) {
		box := a.Create(t, "templateID", "app:v1")
		client(t, a, "template", "rm", "app:v1")
		a.Want(t, 404, "POST", "/sandboxes", map[string]any{"templateID": "app:v1"})
		host := s.HostOf(t, a, box.ID)
		s.Program(host).Kill9()
		if err := s.Program(host).Restart(); err != nil {
			t.Fatal(err)
		}
		if out := a.StartStream(t, box.ID, "cat /app/marker; echo $GREETING").All(t).Stdout(); out != "made by hand\nhello\n" {
			t.Errorf("after its host's restart: %q", out)
		}
	})
}

func killedDuringDownload(t *testing.T, s *rig.Split) {
	t.Helper()
	a := s.APIs[0]
	const victim = "host-2"
	dir := filepath.Join(s.Dir, victim, "templates")
	imported := make(chan string, 1)
	source := image(t, 96<<20)
	go func() {
		defer close(imported) // also if the command fails
		imported <- client(t, a, "template", "import", source, "large")
	}()
	begun := func() bool {
		some, _ := filepath.Glob(filepath.Join(dir, "parts", "*"))
		half, _ := filepath.Glob(filepath.Join(dir, "new-*"))
		return len(some)+len(half) > 0
	}
	if !rig.Poll(60*time.Second, begun) {
		t.Fatal("the download does not start")
	}
	<-imported
	s.Program(victim).Kill9()
	whole := show(t, a, "large").ID
	if _, err := os.Stat(filepath.Join(dir, whole)); err == nil {
		t.Log("the download was complete before the kill")
	}
	if err := s.Program(victim).Restart(); err != nil {
		t.Fatal(err)
	}
	if !rig.Poll(60*time.Second, func() bool { return len(show(t, a, "large").Hosts) == 2 }) {
		t.Fatalf("it is on the hosts %v", show(t, a, "large").Hosts)
	}
	if half, _ := filepath.Glob(filepath.Join(dir, "new-*")); len(half) > 0 {
		t.Errorf("left: %v", half)
	}
	sums := map[string]string{}
	for range 8 {
		box := a.Create(t, "templateID", "large")
		host := s.HostOf(t, a, box.ID)
		sums[host] = a.StartStream(t, box.ID, "sha256sum /app/noise").All(t).Stdout()
		if len(sums) == 2 {
			break
		}
	}
	if len(sums) != 2 || sums["host-1"] != sums[victim] || len(sums[victim]) < 64 {
		t.Errorf("the same file is %v", fmt.Sprint(sums))
	}
}
