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
	"slices"
	"strings"
	"sync"
)

// fakeMachine imitates Firecracker's API: it records the requests in the directory that its
// program is in, fails those that a test has marked, and has a guest that echoes its
// input.
type fakeMachine struct {
	dir        string
	mu         sync.Mutex
	state      string
	configured map[string]bool
}

// playFirecracker runs the test binary as Firecracker and returns the exit code.
func playFirecracker(dir string) int {
	l, err := net.Listen("unix", apiFile)
	if err != nil {
		return 1
	}
	http.Serve(l, &fakeMachine{dir: dir, state: "Not started", configured: map[string]bool{}})
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
		return errors.New("set to fail")
	}
	return f.work(line, body)
}

// apiCall describes a call of Firecracker's API: when it is permitted, and the fields of
// its body.
type apiCall struct {
	states string   // in which it is permitted
	must   []string // required fields
	may    []string // optional fields
}

// apiCalls returns the calls that the driver may need.
func apiCalls() map[string]apiCall {
	const before, running, paused = "Not started", "Running", "Paused"
	return map[string]apiCall{
		"GET /":                {states: before + running + paused},
		"PUT /machine-config":  {states: before, must: []string{"vcpu_count", "mem_size_mib"}, may: []string{"smt", "cpu_template", "track_dirty_pages", "huge_pages"}},
		"PUT /boot-source":     {states: before, must: []string{"kernel_image_path"}, may: []string{"initrd_path", "boot_args"}},
		"PUT /drives/root":     {states: before, must: []string{"drive_id", "is_root_device"}, may: []string{"path_on_host", "is_read_only", "partuuid", "cache_type", "io_engine", "rate_limiter", "socket"}},
		"PUT /vsock":           {states: before, must: []string{"guest_cid", "uds_path"}, may: []string{"vsock_id"}},
		"PUT /actions":         {states: before, must: []string{"action_type"}},
		"PATCH /vm":            {states: running + paused, must: []string{"state"}},
		"PUT /snapshot/create": {states: paused, must: []string{"snapshot_path", "mem_file_path"}, may: []string{"snapshot_type"}},
		"PUT /snapshot/load":   {states: before, must: []string{"snapshot_path"}, may: []string{"mem_backend", "mem_file_path", "track_dirty_pages", "resume_vm", "network_overrides"}},
	}
}

// allowed returns Firecracker's error for a call, before it does anything.
func (f *fakeMachine) allowed(what string, body []byte) error {
	c, ok := apiCalls()[what]
	if !ok {
		return fmt.Errorf("invalid request method or path: %s", what)
	}
	if !strings.Contains(c.states, f.state) {
		return fmt.Errorf("not supported while the machine is %q", f.state)
	}
	fields := map[string]any{}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &fields); err != nil {
			return err
		}
	}
	for _, name := range c.must {
		if _, ok := fields[name]; !ok {
			return fmt.Errorf("missing field %s", name)
		}
		delete(fields, name)
	}
	for name := range fields {
		if !slices.Contains(c.may, name) {
			return fmt.Errorf("unknown field %s", name)
		}
	}
	switch {
	case what == "PUT /snapshot/load" && len(f.configured) > 0:
		return errors.New("a snapshot is not loaded after boot resources were configured")
	case what == "PUT /actions" && !f.configured["PUT /boot-source"]:
		return errors.New("cannot start a machine without a kernel")
	}
	return nil
}

func (f *fakeMachine) work(line string, body []byte) error {
	what, _, _ := strings.Cut(line, " {")
	if err := f.allowed(what, body); err != nil {
		return err
	}
	if strings.HasPrefix(what, "PUT ") {
		f.configured[what] = true
	}
	switch what {
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
			// Together with the first output of the guest, as can happen.
			io.WriteString(conn, "OK 1073741824\nhello ")
			io.Copy(conn, in)
		}()
	}
}
