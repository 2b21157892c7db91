package app

import (
	"cmp"
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/cli/command"
)

// TestMain lets the test binary run as a helper in a sandbox.
func TestMain(m *testing.M) {
	if RunHelper(os.Args) {
		return
	}
	os.Exit(m.Run())
}

func TestFlagsWinOverEnvironmentOverDefaults(t *testing.T) {
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"default", nil, nil, "127.0.0.1:7300"},
		{"environment", nil, map[string]string{"MILLRACE_LISTEN": "127.0.0.1:1"}, "127.0.0.1:1"},
		{"flag", []string{"--listen", "127.0.0.1:2"}, map[string]string{"MILLRACE_LISTEN": "127.0.0.1:1"}, "127.0.0.1:2"},
		{"empty is not set", nil, map[string]string{"MILLRACE_LISTEN": ""}, "127.0.0.1:7300"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			listen := f.String("listen", "127.0.0.1:7300", "")
			if err := f.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			if err := fromEnv(f, func(k string) string { return tt.env[k] }); err != nil || *listen != tt.want {
				t.Errorf("listen = %s, %v; want %s", *listen, err, tt.want)
			}
		})
	}
}

func TestInvalidEnvironmentIsReported(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Int("drain-timeout", 1, "")
	err := fromEnv(f, func(string) string { return "soon" })
	if err == nil || !strings.Contains(err.Error(), "MILLRACE_DRAIN_TIMEOUT") {
		t.Errorf("fromEnv = %v; want the variable's name", err)
	}
}

func TestDataDirectoryIsLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	unlock, err := lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another process (pid ") {
		t.Errorf("second lock = %v; want the pid of its owner", err)
	}
	unlock()
	unlock, err = lock(t.Context(), dir)
	if err != nil {
		t.Fatalf("lock after the end: %v", err)
	}
	unlock()
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory is %v, %v; want 0700", st.Mode(), err)
	}
}

func TestFirstKeyIsStored(t *testing.T) {
	dir := t.TempDir()
	first, err := firstKey(dir, "")
	if err != nil || len(first) != 44 || !strings.HasPrefix(first, "e2b_") || strings.Trim(first[4:], "0123456789abcdef") != "" {
		t.Fatalf("firstKey = %q, %v; want e2b_ and 40 hex digits", first, err)
	}
	if st, err := os.Stat(filepath.Join(dir, command.KeyFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("key file is %v, %v; want 0600", st.Mode(), err)
	}
	if again, err := firstKey(dir, ""); err != nil || again != first {
		t.Errorf("second start has %q, %v; want %q", again, err, first)
	}
	if given, err := firstKey(dir, "e2b_00"); err != nil || given != "e2b_00" {
		t.Errorf("given key gives %q, %v", given, err)
	}
	if kept, err := firstKey(dir, ""); err != nil || kept != "e2b_00" {
		t.Errorf("after a given key %q is stored, %v", kept, err)
	}
	if err := os.Mkdir(filepath.Join(dir, command.KeyFile+".tmp"), 0o700); err != nil { // makes writes fail
		t.Fatal(err)
	}
	if same, err := firstKey(dir, "e2b_00"); err != nil || same != "e2b_00" {
		t.Errorf("on a full disk the stored key gives %q, %v", same, err)
	}
	if other, err := firstKey(dir, "e2b_01"); err == nil {
		t.Errorf("on a full disk another key gives %q", other)
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{"/a/b-c.d": "/a/b-c.d", "": "''", "a b": "'a b'", "it's": `'it'\''s'`} {
		if got := quote(s); got != want {
			t.Errorf("quote(%q) = %s, want %s", s, got, want)
		}
	}
}

func TestHostNameIsAllowed(t *testing.T) {
	name := hostName()
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		t.Errorf("hostName = %q", name)
	}
}

// root runs the program's root command and returns its output.
func root(ctx context.Context, env map[string]string, args ...string) (out, errOut string, err error) {
	var o, e syncBuffer
	c := newRoot(command.Config{In: strings.NewReader(""), Out: &o, Err: &e, LookupEnv: func(k string) (v string, ok bool) { v, ok = env[k]; return }, Version: "test"})
	c.SetArgs(args)
	err = c.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, name := range []string{"up", "nats", "gateway", "scheduler", "reaper", "hostd", "run", "attach", "ps", "logs", "kill", "cp", "port-forward", "sandbox", "hosts", "events", "doctor", "bench", "completion"} {
		out, _, err := root(t.Context(), nil, name, "--help")
		if err != nil || !strings.Contains(out, "Usage:") {
			t.Errorf("%s --help: %v\n%s", name, err, out)
		}
	}
}

func TestInvalidSettingsAreRejectedAtOnce(t *testing.T) {
	tests := []struct{ args, want string }{
		{"nats", "--data is required"},
		{"nats --data DIR --durability maybe", "--durability maybe"},
		{"up --data DIR --durability maybe", "--durability maybe"},
		{"up --data DIR --log-level loud", "--log-level"},
		{"up --data DIR --listen nowhere", "listen"},
		{"scheduler --log-format yaml", "--log-format"},
		{"up sideways", "unknown command"},
		{"up --data DIR --default-cpus -1", "--default-cpus -1: "},
		{"up --data DIR --default-cpus NaN", "--default-cpus NaN: "},
		{"up --data DIR --default-cpus Inf", "--default-cpus +Inf: "},
		{"gateway --default-memory 15", "--default-memory 15: "},
		{"gateway --default-pids 15", "--default-pids 15: "},
		{"up --data DIR --max-timeout -1s", "--max-timeout -1s: "},
		{"up --data DIR --max-timeout 999ms", "--max-timeout 999ms: "},
		{"gateway --drain-timeout -1s", "--drain-timeout -1s: "},
		{"gateway --egress-allow everything", "--egress-allow: "},
		{"gateway --outbound-allow everything", "--outbound-allow: "},
		{"up --data DIR --outbound-dns localhost", "--outbound-dns: "},
		{"up --data DIR --retention 999ms", "--retention 999ms: "},
		{"reaper --retention -1h", "--retention -1h0m0s: "},
		{"up --data DIR --cpu-overcommit -1", "--cpu-overcommit -1: "},
		{"scheduler --memory-overcommit NaN", "--memory-overcommit NaN: "},
		{"scheduler --memory-overcommit Inf", "--memory-overcommit +Inf: "},
		{"up --data DIR --capacity -1", "--capacity -1: "},
		{"up --data DIR --egress bogus", "--egress: "},
		{"up --data DIR --network bogus", "--network: "},
		{"hostd --data DIR --egress bogus", "--egress: "},
		{"hostd", "--data is required"},
		{"up --data DIR --shim DIR/none", "--shim: "},
		{"hostd --data DIR --shim DIR", "--shim /"},
	}
	for _, tt := range tests {
		args := strings.Fields(strings.ReplaceAll(tt.args, "DIR", t.TempDir()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // in case a setting is accepted
		_, _, err := root(ctx, nil, args...)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("millrace %s: %v; want %q", tt.args, err, tt.want)
		}
	}
}

func TestValidSettingsAreAccepted(t *testing.T) {
	for _, args := range []string{
		"--retention 0", "--retention 1s", "--max-timeout 0", "--max-timeout 1s", "--drain-timeout 0",
		"--default-cpus 0", "--default-cpus 0.01", "--default-memory 0", "--default-memory 16", "--default-pids 0", "--default-pids 16",
		"--cpu-overcommit 0", "--memory-overcommit 0.5", "--capacity 0", "--shim self", "--egress internet", "--egress-allow 10.0.0.0/8",
		"--outbound-allow 10.0.0.0/8 --outbound-dns 127.0.0.1:53",
	} {
		u := up{cfg: &command.Config{Err: io.Discard, LookupEnv: func(string) (string, bool) { return "", false }}}
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		u.flags(f)
		if err := cmp.Or(f.Parse(append(strings.Fields(args), "--data", t.TempDir())), u.prepare()); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A service that is stopped while it waits for NATS exits with 0.
func TestStopWhileWaitingForNATS(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for _, name := range []string{"gateway", "scheduler", "reaper", "hostd"} {
		if _, _, err := root(ctx, nil, name, "--nats", "nats://127.0.0.1:1", "--data", t.TempDir()); err != nil && !strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Servers in sandboxes can make net/http write any text to Go's default logger.
func TestLibraryLogsAreDebugMessages(t *testing.T) {
	defer log.SetFlags(log.Flags())
	defer log.SetOutput(log.Writer())
	for level, want := range map[string]string{"info": "", "debug": `"level":"DEBUG","msg":"what\nthey say"`} {
		var out syncBuffer
		c := common{logLevel: level, logFormat: "json"}
		if _, err := c.logger(&command.Config{Err: &out}); err != nil {
			t.Fatal(err)
		}
		log.Print("what\nthey say")
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s", level, got)
		}
	}
}
