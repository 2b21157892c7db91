package e2e_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// A download is cut off when its host is killed: the client never takes a part for the
// whole, with or without a content length. An upload leaves nothing or, if the host restarts
// in time, succeeds completely. The file is unchanged after the host's restart.
func TestFilesOfAKilledHostAreCut(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{})
	a := s.APIs[0]
	box := a.Create(t)
	const size = 200 << 20
	if lines := a.Commands(t, box.ID, "head -c 209715200 /dev/urandom > big && echo made").All(t); !strings.Contains(rig.Output(lines, "stdout"), "made") {
		t.Fatalf("%+v", lines)
	}
	open := func(method, path string, body io.Reader, headers ...string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, a.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		req.Header.Set("X-Api-Key", a.Key)
		req.Header.Set("E2b-Sandbox-Id", box.ID)
		return http.DefaultClient.Do(req)
	}
	down := func(encoding string) *http.Response {
		res, err := open(http.MethodGet, filesPath("big"), nil, "Accept-Encoding", encoding)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if _, err := io.CopyN(io.Discard, res.Body, 1<<10); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v", res.StatusCode, err)
		}
		return res
	}
	plain, zipped := down("identity"), down("gzip")
	from, to := io.Pipe()
	up := make(chan int, 1)
	go func() {
		res, err := open(http.MethodPost, filesPath("up"), from, "Content-Type", octets)
		from.CloseWithError(io.ErrClosedPipe)
		if err != nil {
			up <- 0
			return
		}
		res.Body.Close()
		up <- res.StatusCode
	}()
	halves := [][]byte{bytes.Repeat([]byte("one\n"), 1<<18), bytes.Repeat([]byte("two\n"), 1<<18)}
	to.Write(halves[0])
	s.Program("host-1").Kill9()
	must(t, s.RestartProgram("host-1")) // before its lease ends, and with it the sandbox
	if n, err := io.Copy(io.Discard, plain.Body); err == nil || n >= size {
		t.Errorf("a truncated download looks complete after %d bytes: %v", n, err)
	}
	if n, err := io.Copy(io.Discard, zipped.Body); err == nil {
		t.Errorf("a truncated compressed download looks complete after %d bytes", n)
	}
	to.Write(halves[1])
	to.Close()
	taken := <-up == http.StatusOK // the host may have restarted it
	ok := rig.Poll(time.Minute, func() bool {
		res, err := open(http.MethodGet, filesPath("big"), nil, "Accept-Encoding", "identity")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		n, err := io.Copy(io.Discard, res.Body)
		return err == nil && n == size && res.StatusCode == http.StatusOK
	})
	if !ok {
		t.Error("the file does not exist any more")
	}
	if !taken {
		a.Want(t, http.StatusNotFound, http.MethodGet, filesPath("up"), nil, "E2b-Sandbox-Id", box.ID)
		return
	}
	res, err := open(http.MethodGet, filesPath("up"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, slices.Concat(halves...)) {
		t.Errorf("an accepted upload has %d bytes: %v", len(got), err)
	}
}
