package workspaces_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
	"github.com/millrace/millrace/services/gateway/internal/workspaces/workspacestest"
)

var mine = workspace.Scope{Tenant: "alice", App: "app", Set: "set"}

const secretKey = "wJalrXUtnFEMI/K7MDENG"

// bucketTimeout is short for the stores that do not respond.
const bucketTimeout = 300 * time.Millisecond

func openBucket(t *testing.T, url string, timeout time.Duration) *workspaces.InBucket {
	t.Helper()
	b, err := workspaces.NewInBucket(workspaces.BucketConfig{URL: url, AccessKey: "AKIA", SecretKey: secretKey, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startS3 returns the URL of a bucket of an S3 store in this process.
func startS3(t *testing.T) (url string, objects *s3mem.Backend) {
	t.Helper()
	objects = s3mem.New()
	if err := objects.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(objects).Server())
	t.Cleanup(s.Close)
	return s.URL + "/files", objects
}

func TestInBucket(t *testing.T) {
	workspacestest.Run(t, func(t *testing.T) workspaces.Store {
		url, _ := startS3(t)
		return openBucket(t, url+"/some/prefix", 0)
	})
}

// A client transfers a file with links of the store only.
func TestBucketLinks(t *testing.T) {
	url, _ := startS3(t)
	b := openBucket(t, url, 0)
	const p, data = "a b/ü+%2F?&#.txt", "bytes"
	put, err := b.Upload(t.Context(), "", mine, p)
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, url, data string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %s %s, %v", method, resp.Status, raw, err)
		}
		return string(raw)
	}
	do("PUT", put, data)
	get, err := b.Download(t.Context(), "", mine, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := do("GET", get, ""); got != data {
		t.Errorf("%q", got)
	}
	for _, link := range []string{put, get} {
		if !strings.Contains(link, "X-Amz-Signature=") || !strings.Contains(link, "X-Amz-Expires=3600") || strings.Contains(link, secretKey) {
			t.Error(link)
		}
	}
}

// Objects that other programs stored are not files if no path of a file is like theirs.
func TestBucketWithForeignObjects(t *testing.T) {
	url, objects := startS3(t)
	b := openBucket(t, url, 0)
	for _, key := range []string{"alice/app/set/dir/", "alice/app/set/a//b", "alice/app/set/../x", "alice/app/set/f", "alice/app/stray", "alice/.hidden/set/f", "stray"} {
		if _, err := objects.PutObject("files", key, nil, strings.NewReader("x"), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	p, err := b.List(t.Context(), mine, "", "", 10)
	if err != nil || len(p.Files) != 1 || p.Files[0].Path != "f" || p.More {
		t.Errorf("%+v, %v", p, err)
	}
	all, err := b.Workspaces(t.Context(), "alice")
	if err != nil || len(all) != 1 || all[0] != (workspace.Usage{Scope: mine, Bytes: 1, Files: 1}) {
		t.Errorf("%+v, %v", all, err)
	}
}

// A store that refuses, is wrong, or is slow: each call ends with an error of the right kind, which
// reveals nothing to the client.
func TestBucketThatFails(t *testing.T) {
	const code = "<Error><Code>%s</Code><Message>detail %s</Message></Error>"
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	release := make(chan struct{})
	const list = `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>1</NextContinuationToken><Contents><Key>%s</Key><Size>1</Size></Contents></ListBucketResult>`
	for name, tt := range map[string]struct {
		serve  http.HandlerFunc
		list   bool // only a list shows the problem
		want   kind.Kind
		client string
	}{
		"forbidden":      {serve: answer(403, fmt.Sprintf(code, "AccessDenied", secretKey)), want: kind.Unavailable, client: "refuses"},
		"no bucket":      {serve: answer(404, fmt.Sprintf(code, "NoSuchBucket", "")), list: true, want: kind.Unavailable, client: "does not exist"},
		"full":           {serve: answer(507, fmt.Sprintf(code, "Full", "")), want: kind.Exhausted, client: "full"},
		"broken":         {serve: answer(500, "oops"), want: kind.Unavailable, client: "unavailable"},
		"no XML":         {serve: answer(200, "<html>hello"), list: true, want: kind.Unavailable, client: "unavailable"},
		"another prefix": {serve: answer(200, fmt.Sprintf(list, false, "bob/app/set/a")), list: true, want: kind.Unavailable, client: "not ordered"},
		"without an end": {serve: answer(200, fmt.Sprintf(list, true, "alice/app/set/a")), list: true, want: kind.Unavailable, client: "not ordered"},
		"silent": {serve: func(http.ResponseWriter, *http.Request) {
			<-release
		}, want: kind.Unavailable, client: "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the client waits between its attempts
			s := httptest.NewServer(tt.serve)
			t.Cleanup(s.Close)
			b := openBucket(t, s.URL+"/files", bucketTimeout)
			calls := map[string]func() error{
				"list": func() error { _, err := b.List(t.Context(), mine, "", "", 10); return err },
				"all":  func() error { _, err := b.Workspaces(t.Context(), "alice"); return err },
			}
			if !tt.list {
				calls["open"] = func() error { _, err := b.Open(t.Context(), mine, "a"); return err }
				calls["put"] = func() error { return b.Put(t.Context(), mine, "a", 3, strings.NewReader("new")) }
				calls["download"] = func() error { _, err := b.Download(t.Context(), "", mine, "a"); return err }
			}
			for what, call := range calls {
				err := call()
				if !kind.Is(err, tt.want) || !strings.Contains(kind.Message(err), tt.client) || strings.Contains(kind.Message(err), secretKey) {
					t.Errorf("%s: %v, for clients: %s", what, err, kind.Message(err))
				}
			}
			if name == "silent" {
				close(release)
			}
		})
	}
}

// A body that stops or breaks off is never complete.
func TestBucketThatStopsInABody(t *testing.T) {
	release := make(chan struct{})
	for name, wait := range map[string]bool{"stops": true, "breaks off": false} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
				io.WriteString(w, "01234")
				w.(http.Flusher).Flush()
				if wait {
					<-release
				}
			}))
			t.Cleanup(s.Close)
			f, err := openBucket(t, s.URL+"/files", bucketTimeout).Open(t.Context(), mine, "a")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Body.Close()
			if got, err := io.ReadAll(f.Body); err == nil || string(got) != "01234" {
				t.Errorf("%q, %v", got, err)
			}
			if wait {
				close(release)
			}
		})
	}
}

func TestBucketConfig(t *testing.T) {
	for _, url := range []string{"", "files", "ftp://x/files", "https://x", "https://x/", "https://x/F", "https://x/files/../y", "https://u:p@x/files", "https://x/files?a=b"} {
		if _, err := workspaces.NewInBucket(workspaces.BucketConfig{URL: url, AccessKey: "a", SecretKey: "b"}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	if _, err := workspaces.NewInBucket(workspaces.BucketConfig{URL: "https://x/files"}); err == nil {
		t.Error("no keys are accepted")
	}
}
