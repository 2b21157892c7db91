package console_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/console"
)

// maxWeight is the maximum size of all files, as a browser without compression receives them.
const maxWeight = 150_000

func serve(t *testing.T) func(path string, headers ...string) (*http.Response, string) {
	t.Helper()
	h := console.New()
	app := fiber.New()
	app.Get("/", h.Page)
	h.Register(app)
	return func(path string, headers ...string) (*http.Response, string) {
		t.Helper()
		req := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := app.Test(req, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
}

// sources returns the files by their path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := os.DirFS("web")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(root, name)
		out[name] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryFileIsServedWithItsPolicy(t *testing.T) {
	get := serve(t)
	want := map[string]string{"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	total := 0
	for name, src := range sources(t) {
		total += len(src)
		path := console.Prefix + name
		if name == "index.html" {
			path = "/"
		}
		resp, body := get(path)
		ext := name[strings.LastIndexByte(name, '.')+1:]
		if resp.StatusCode != 200 || body != src || resp.Header.Get("Content-Type") != want[ext] {
			t.Errorf("GET %s: %d %s, %d bytes of %d", path, resp.StatusCode, resp.Header.Get("Content-Type"), len(body), len(src))
		}
		for header, value := range map[string]string{"Content-Security-Policy": console.Policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
			if got := resp.Header.Get(header); got != value {
				t.Errorf("GET %s: %s %q, want %q", path, header, got, value)
			}
		}
	}
	t.Logf("%d bytes in all", total)
	if total == 0 || total > maxWeight {
		t.Errorf("the files have %d bytes, want at most %d", total, maxWeight)
	}
	if resp, _ := get(console.Prefix + "none.js"); resp.StatusCode != 404 {
		t.Errorf("GET of no file: %d, want 404", resp.StatusCode)
	}
}

func TestEntityTagsAndCompression(t *testing.T) {
	get := serve(t)
	path := console.Prefix + "app.js"
	plain, body := get(path)
	zipped, packed := get(path, "Accept-Encoding", "gzip, br")
	if zipped.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" {
		t.Fatalf("encodings %q and %q", zipped.Header.Get("Content-Encoding"), plain.Header.Get("Content-Encoding"))
	}
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != body {
		t.Errorf("unpacked to %d bytes, %v, want %d", len(got), err, len(body))
	}
	if plain.Header.Get("ETag") == zipped.Header.Get("ETag") {
		t.Error("both encodings have one entity tag")
	}
	resp, rest := get(path, "If-None-Match", plain.Header.Get("ETag"))
	if resp.StatusCode != 304 || rest != "" {
		t.Errorf("with a current entity tag: %d, %d bytes, want 304", resp.StatusCode, len(rest))
	}
}

var (
	external = regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`)
	markup   = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage|style="`)
	imported = regexp.MustCompile(`from '(\.[^']+)'`)
)

// The policy would block these at run time; a file that relies on them is a mistake.
func TestFilesLoadNothingElsewhereAndSetNoMarkup(t *testing.T) {
	all := sources(t)
	for name, src := range all {
		if found := external.FindString(strings.ReplaceAll(src, "http://www.w3.org/2000/svg", "")); found != "" {
			t.Errorf("%s has the external address %s", name, found)
		}
		if found := markup.FindString(src); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		for _, m := range imported.FindAllStringSubmatch(src, -1) {
			target := strings.TrimPrefix(m[1], "./")
			if rest, up := strings.CutPrefix(target, "../"); up {
				target = rest
			} else if strings.HasPrefix(name, "pages/") {
				target = "pages/" + target
			}
			if _, ok := all[target]; !ok {
				t.Errorf("%s imports %s, which does not exist", name, m[1])
			}
		}
	}
}

// A browser loads all modules at once: one that it finds only in another one costs a round trip.
func TestPageNamesEveryModule(t *testing.T) {
	all := sources(t)
	for name := range all {
		if strings.HasSuffix(name, ".js") && !strings.Contains(all["index.html"], `="/console/`+name+`"`) {
			t.Errorf("index.html does not name %s", name)
		}
	}
}
