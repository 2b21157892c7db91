//go:build linux

package microvm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// fakeMachine is Firecracker as far as its API shows: it writes down what it is
// asked, in the directory that its program is in, fails where it is told to, and
// has a guest that says back what it hears.
type fakeMachine struct {
	dir   string
	mu    sync.Mutex
	state string
}

// playFirecracker is the test binary as Firecracker; it gives the exit code.
func playFirecracker(dir string) int {
	l, err := net.Listen("unix", apiFile)
	if err != nil {
		return 1
	}
	http.Serve(l, &fakeMachine{dir: dir, state: "Not started"}) //nolint:errcheck // it is killed
	return 1
}

func (f *fakeMachine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var compact bytes.Buffer
	if len(body) > 0 && json.Compact(&compact, body) != nil {
		compact.WriteString("not JSON")
	}
	line := strings.TrimSpace(r.Method + " " + r.URL.Path + " " + compact.String())
	switch err := f.answer(line, body); {
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"fault_message":%q}`, err)
	case r.Method == "GET":
		fmt.Fprintf(w, `{"id":"x","state":%q,"vmm_version":"0","app_name":"Firecracker"}`, f.state)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (f *fakeMachine) answer(line string, body []byte) error {
	log, err := os.OpenFile(filepath.Join(f.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintln(log, line)
	if fail, err := os.ReadFile(filepath.Join(f.dir, "fail")); err == nil && strings.HasPrefix(line, string(fail)) {
		return errors.New("told to fail")
	}
	return f.work(line, body)
}

func (f *fakeMachine) work(line string, body []byte) error {
	switch what, _, _ := strings.Cut(line, " {"); what {
	case "PUT /actions", "PUT /snapshot/load":
		f.state = "Running"
		l, err := net.Listen("unix", vsockFile)
		if err == nil {
			go echo(l)
		}
		return err
	case "PATCH /vm":
		f.state = "Running"
		if strings.Contains(line, "Paused") {
			f.state = "Paused"
		}
	case "PUT /snapshot/create":
		if f.state != "Paused" {
			return errors.New("the machine runs")
		}
		var to struct {
			Snapshot string `json:"snapshot_path"`
			Memory   string `json:"mem_file_path"`
		}
		if err := json.Unmarshal(body, &to); err != nil {
			return err
		}
		return errors.Join(os.WriteFile(to.Snapshot, nil, 0o600), os.WriteFile(to.Memory, nil, 0o600))
	}
	return nil
}

// echo is the guest behind Firecracker's end of the vsock.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			if line, err := in.ReadString('\n'); err != nil || line != fmt.Sprintf("CONNECT %d\n", shimPort) {
				return
			}
			// Together with the first words of the guest, as it may come.
			io.WriteString(conn, "OK 1073741824\nhello ") //nolint:errcheck // the reader tells
			io.Copy(conn, in)                             //nolint:errcheck // see above
		}()
	}
}
