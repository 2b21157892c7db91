//go:build linux

package microvm

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// fakeFirecracker returns a driver with a fake program and kernel; the program records the
// requests.
func fakeFirecracker(t *testing.T) (*Firecracker, string) {
	t.Helper()
	dir, kernel := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, firecrackerName)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	files := []string{"boot/vmlinux-6.1.0-1-cloud-amd64"}
	for _, m := range vsockModules() {
		files = append(files, "lib/modules/6.1.0-1-cloud-amd64/kernel/"+m+".ko")
	}
	for _, name := range files {
		path := filepath.Join(kernel, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewFirecracker(FirecrackerConfig{Program: program, Kernel: kernel, Cache: t.TempDir()}), dir
}

// fakeSpec returns the spec of a sandbox whose image already exists; its contents are not read.
func fakeSpec(t *testing.T, d *Firecracker, id sandbox.ID) driver.Spec {
	t.Helper()
	tree := filepath.Join(d.cfg.Cache, "tree")
	if err := os.MkdirAll(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	image, err := keyOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.cfg.Cache, image+".squashfs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	shim := "/proc/self/exe"
	if static(shim) != nil {
		shim = "/bin/busybox"
	}
	if err := static(shim); err != nil {
		t.Skip("no static binary available: ", err)
	}
	return driver.Spec{ID: id, Dir: dir, Root: tree, ShimPath: shim, CPUMilli: 1500, MemoryMiB: 256}
}

func imageOf(t *testing.T, d *Firecracker, s *driver.Spec) string {
	t.Helper()
	path, err := d.images.get(t.Context(), s.Root)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// requests returns the requests to all machines, without the first n.
func requests(t *testing.T, dir string, n int) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")[n:]
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("remaining in the directory: %v, %v", left, err)
	}
}

func markToFail(t *testing.T, dir, request string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "fail"), []byte(request), 0o600); err != nil {
		t.Fatal(err)
	}
}

func createOne(t *testing.T, d *Firecracker, s driver.Spec) driver.Instance {
	t.Helper()
	in, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := in.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		}
		empty(t, s.Dir)
	})
	return in
}

func TestFirecrackerBoots(t *testing.T) {
	d, dir := fakeFirecracker(t)
	s := fakeSpec(t, d, "i1")
	createOne(t, d, s)
	same(t, requests(t, dir, 0), []string{
		`PUT /machine-config {"mem_size_mib":256,"vcpu_count":2}`,
		`PUT /boot-source {"boot_args":"quiet reboot=k panic=-1 rdinit=/shim -- microvm-init","initrd_path":"vm/initrd",` +
			`"kernel_image_path":"` + d.cfg.Kernel + `/boot/vmlinux-6.1.0-1-cloud-amd64"}`,
		`PUT /drives/root {"drive_id":"root","is_read_only":true,"is_root_device":false,"path_on_host":"` + imageOf(t, d, &s) + `"}`,
		`PUT /vsock {"guest_cid":3,"uds_path":"vsock.sock"}`,
		`PUT /actions {"action_type":"InstanceStart"}`,
	})
	if _, err := d.Create(t.Context(), s); !kind.Is(err, kind.Conflict) {
		t.Errorf("second create in the directory: %v, want Conflict", err)
	}
}

func TestFirecrackerDialsTheGuest(t *testing.T) {
	d, _ := fakeFirecracker(t)
	s := fakeSpec(t, d, "i1")
	createOne(t, d, s)
	for range 2 { // each in another run of hostd
		in, err := NewFirecracker(d.cfg).Attach(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := in.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "guest"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len("hello guest"))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello guest" {
			t.Errorf("got %q, %v", got, err)
		}
		conn.Close()
	}
}

func TestFirecrackerPausesAndSnapshots(t *testing.T) {
	d, dir := fakeFirecracker(t)
	in := createOne(t, d, fakeSpec(t, d, "i1"))
	n := len(requests(t, dir, 0))
	kept := t.TempDir()
	for what, err := range map[string]error{
		"snapshot": in.Snapshot(t.Context(), kept, true),
		"pause":    in.Pause(t.Context()),
		"resume":   in.Resume(t.Context()),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	same(t, requests(t, dir, n), []string{
		"GET /", `PATCH /vm {"state":"Paused"}`,
		`PUT /snapshot/create {"mem_file_path":"` + kept + `/memory","snapshot_path":"` + kept + `/state","snapshot_type":"Full"}`,
		`PATCH /vm {"state":"Resumed"}`, `PATCH /vm {"state":"Paused"}`, `PATCH /vm {"state":"Resumed"}`,
	})
	n = len(requests(t, dir, 0))
	fork := fakeSpec(t, d, "i2")
	fork.From = kept
	createOne(t, d, fork)
	same(t, requests(t, dir, n), []string{
		`PUT /snapshot/load {"mem_backend":{"backend_path":"` + kept + `/memory","backend_type":"File"},"resume_vm":true,"snapshot_path":"` + kept + `/state"}`,
	})
}

func TestFirecrackerUndoesWhatFails(t *testing.T) {
	kept := t.TempDir()
	for _, name := range []string{stateFile, memoryFile, machineFile} {
		if err := os.WriteFile(filepath.Join(kept, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for fail, want := range map[string]struct {
		kind kind.Kind
		from string
	}{
		"PUT /machine-config": {kind.Invalid, ""},
		"PUT /boot-source":    {kind.Unavailable, ""},
		"PUT /drives":         {kind.Unavailable, ""},
		"PUT /vsock":          {kind.Unavailable, ""},
		"PUT /actions":        {kind.Unavailable, ""},
		"PUT /snapshot/load":  {kind.Unavailable, kept},
	} {
		t.Run(fail, func(t *testing.T) {
			d, dir := fakeFirecracker(t)
			markToFail(t, dir, fail)
			s := fakeSpec(t, d, "i1")
			s.From = want.from
			_, err := d.Create(t.Context(), s)
			if !kind.Is(err, want.kind) || !strings.Contains(err.Error(), "set to fail") || strings.Contains(err.Error(), "fault_message") {
				t.Errorf("got %v, want %v and Firecracker's message", err, want.kind)
			}
			empty(t, s.Dir)
			if all := requests(t, dir, 0); !strings.HasPrefix(all[len(all)-1], fail) {
				t.Errorf("requests after the refused one: %q", all)
			}
		})
	}
}

// An error of Pause or Resume is returned, and the next attempt succeeds.
func TestFirecrackerThatRefusesToStop(t *testing.T) {
	for fail, do := range map[string]func(driver.Instance) error{
		`PATCH /vm {"state":"Paused"`:  func(in driver.Instance) error { return in.Pause(t.Context()) },
		`PATCH /vm {"state":"Resumed"`: func(in driver.Instance) error { return in.Resume(t.Context()) },
		`GET /`:                        func(in driver.Instance) error { return in.Snapshot(t.Context(), t.TempDir(), true) },
	} {
		d, dir := fakeFirecracker(t)
		in := createOne(t, d, fakeSpec(t, d, "i1"))
		markToFail(t, dir, fail)
		if err := do(in); !kind.Is(err, kind.Unavailable) || !strings.Contains(err.Error(), "set to fail") {
			t.Errorf("%s: got %v, want unavailable and Firecracker's message", fail, err)
		}
		if err := os.Remove(filepath.Join(dir, "fail")); err != nil {
			t.Fatal(err)
		}
		if err := do(in); err != nil {
			t.Errorf("%s, again: %v", fail, err)
		}
	}
}

// The fake rejects every call that the API would reject.
func TestFakeFirecrackerEnforcesTheAPI(t *testing.T) {
	const before, running = "Not started", "Running"
	for _, tt := range []struct{ state, line, body string }{
		{before, "PUT /machine-config", `{"vcpu_count":1}`},
		{before, "PUT /machine-config", `{"vcpu_count":1,"mem_size_mib":2,"memory":3}`},
		{running, "PUT /boot-source", `{"kernel_image_path":"k"}`},
		{before, "PUT /actions", `{"action_type":"InstanceStart"}`}, // without a kernel
		{before, "PATCH /vm", `{"state":"Paused"}`},
		{running, "PUT /vm", `{"state":"Paused"}`},
		{running, "PUT /snapshot/create", `{"snapshot_path":"s","mem_file_path":"m"}`},
		{running, "PUT /snapshot/load", `{"snapshot_path":"s"}`},
	} {
		f := &fakeMachine{state: tt.state, configured: map[string]bool{}}
		if err := f.allowed(tt.line, []byte(tt.body)); err == nil {
			t.Errorf("%s, %s %s: accepted", tt.state, tt.line, tt.body)
		}
	}
	f := &fakeMachine{state: before, configured: map[string]bool{"PUT /vsock": true}}
	if err := f.allowed("PUT /snapshot/load", []byte(`{"snapshot_path":"s"}`)); err == nil {
		t.Error("a snapshot was loaded into a configured machine")
	}
}

func TestFirecrackerSnapshotThatFails(t *testing.T) {
	d, dir := fakeFirecracker(t)
	in := createOne(t, d, fakeSpec(t, d, "i1"))
	if err := in.Snapshot(t.Context(), t.TempDir(), false); !kind.Is(err, kind.Unimplemented) {
		t.Errorf("without memory: %v, want unimplemented", err)
	}
	markToFail(t, dir, "PUT /snapshot/create")
	kept := t.TempDir()
	if err := in.Snapshot(t.Context(), kept, true); err == nil {
		t.Error("a failed snapshot was reported as success")
	}
	empty(t, kept)
	all := requests(t, dir, 0)
	if last := all[len(all)-1]; last != `PATCH /vm {"state":"Resumed"}` {
		t.Errorf("last request %s: the machine remains paused", last)
	}
	fork := fakeSpec(t, d, "i2")
	fork.From = kept
	if _, err := d.Create(t.Context(), fork); !kind.Is(err, kind.NotFound) {
		t.Errorf("from an empty directory: %v, want not found", err)
	}
}
