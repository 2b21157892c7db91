package backup_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/backup"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
)

// server is a NATS server with the streams of an installation.
type server struct {
	url string
	js  jetstream.JetStream
}

func start(t *testing.T, prepared bool) *server {
	t.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	s := &server{url: srv.URL()}
	nc, err := nats.Connect(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if prepared {
		s.open(t)
	}
	return s
}

// open creates the streams.
func (s *server) open(t *testing.T) {
	t.Helper()
	log, err := events.Open(t.Context(), events.Config{URL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
}

func (s *server) put(t *testing.T, subject, data string) {
	t.Helper()
	msg := nats.NewMsg(subject)
	msg.Data = []byte(data)
	msg.Header.Set("Test-Of", data)
	if _, err := s.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

func (s *server) purge(t *testing.T, stream, subject string) {
	t.Helper()
	st, err := s.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
		t.Fatal(err)
	}
}

// messages returns all messages of the streams that a backup has, and the last sequences.
func (s *server) messages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	list := s.js.ListStreams(t.Context())
	for info := range list.Info() {
		name := info.Config.Name
		if info.Config.Storage != jetstream.FileStorage || name == "OBJ_views" || name == "FRAME" {
			continue
		}
		all[name] = fmt.Sprintf("last %d, %d messages", info.State.LastSeq, info.State.Msgs)
		st, err := s.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; ; {
			m, err := st.GetMsg(t.Context(), max(seq, 1), jetstream.WithGetMsgSubject(">"))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all[fmt.Sprintf("%s %d", name, m.Sequence)] = fmt.Sprintf("%s %v %v %s", m.Subject, m.Time, m.Header, m.Data)
			seq = m.Sequence + 1
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func key(t *testing.T, digit string) *backup.Key {
	t.Helper()
	k, err := backup.ParseKey(strings.Repeat(digit, 64))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (s *server) backUp(t *testing.T, dir string) *backup.Manifest {
	t.Helper()
	m, err := backup.Run(t.Context(), backup.Options{Target: backup.Target{URL: s.url}, Dir: dir, Key: key(t, "a")})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *server) restore(t *testing.T, dir string) error {
	t.Helper()
	_, err := backup.Restore(t.Context(), backup.RestoreOptions{Target: backup.Target{URL: s.url}, Dir: dir, Key: key(t, "a")})
	return err
}

// fill stores messages, replaces some, and removes others.
func (s *server) fill(t *testing.T, round int) {
	t.Helper()
	s.put(t, "host.h", "") // a lease that names no host stays as it is
	for i := range 40 {
		s.put(t, fmt.Sprintf("out.00.h.s.p%d", i%3), fmt.Sprintf("output %d.%d", round, i))
		s.put(t, fmt.Sprintf("vault.t.v%d", i%5), fmt.Sprintf("value %d.%d", round, i))
		s.put(t, fmt.Sprintf("sbx.t.s%d", i%7), fmt.Sprintf("event %d.%d", round, i))
	}
	s.put(t, fmt.Sprintf("vault.t.only%d", round), "x")
}

// All messages keep their sequences and times, also those of a second backup. What was replaced
// or removed between the backups does not return.
func TestARestoreHasWhatTheLastBackupSaw(t *testing.T) {
	old, dir := start(t, true), t.TempDir()
	old.fill(t, 1)
	first := old.backUp(t, dir)
	old.fill(t, 2)
	old.purge(t, "SBX", "sbx.t.s3")
	old.purge(t, "VAULT", "vault.t.only1")
	second := old.backUp(t, dir)
	for _, s := range second.Streams {
		if s.Config.Name == "OUT_00" && (len(s.Parts) != 2 || s.Parts[0].Backup != first.ID || s.Parts[1].Messages != 40) {
			t.Errorf("the second backup has the parts %+v", s.Parts)
		}
	}
	fresh := start(t, false)
	if err := fresh.restore(t, dir); err != nil {
		t.Fatal(err)
	}
	want, got := old.messages(t), fresh.messages(t)
	if len(want) < 150 || !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %q, want %q", k, got[k], v)
			}
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				t.Errorf("%s returned: %q", k, v)
			}
		}
	}
	fresh.open(t)
	fresh.put(t, "out.00.h.s.p0", "next")
	if m := fresh.backUp(t, dir); m.ID <= second.ID {
		t.Errorf("the backup of the restored installation is %s, after %s", m.ID, second.ID)
	}
}

// A backup that finds nothing new writes a manifest alone.
func TestAnUnchangedStreamIsNotReadAgain(t *testing.T) {
	s, dir := start(t, true), t.TempDir()
	s.fill(t, 1)
	s.backUp(t, dir)
	again := s.backUp(t, dir)
	files, err := os.ReadDir(filepath.Join(dir, again.ID))
	if err != nil || len(files) != 1 {
		t.Errorf("files: %v, %v", files, err)
	}
}

func TestARestoreNeedsAnEmptyInstallation(t *testing.T) {
	s, dir := start(t, true), t.TempDir()
	s.fill(t, 1)
	s.backUp(t, dir)
	before := s.messages(t)
	if err := s.restore(t, dir); kind.Code(err) != "restore_not_empty" || !kind.Is(err, kind.Precondition) {
		t.Errorf("err = %v", err)
	}
	if !maps.Equal(s.messages(t), before) {
		t.Error("the restore changed the installation")
	}
}

// After a cut, services do not start, and another restore does all of it.
func TestACutRestoreIsRepeated(t *testing.T) {
	old, dir := start(t, true), t.TempDir()
	old.fill(t, 1)
	old.backUp(t, dir)
	fresh := start(t, false)
	marker := jetstream.StreamConfig{Name: "RESTORE", Subjects: []string{"restore.>"}}
	half := jetstream.StreamConfig{Name: "VAULT", Subjects: []string{"vault.>"}}
	for _, sc := range []jetstream.StreamConfig{marker, half} {
		if _, err := fresh.js.CreateStream(t.Context(), sc); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := events.Open(t.Context(), events.Config{URL: fresh.url}); kind.Code(err) != "restore_unfinished" {
		t.Errorf("a service starts: %v", err)
	}
	if err := fresh.restore(t, dir); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(fresh.messages(t), old.messages(t)) {
		t.Error("the second restore is not complete")
	}
	fresh.open(t)
}

func TestDamageIsReported(t *testing.T) {
	s, dir := start(t, true), t.TempDir()
	s.fill(t, 1)
	m := s.backUp(t, dir)
	s.fill(t, 2)
	m2 := s.backUp(t, dir)
	edit := func(name string, do func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, do(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	tests := []struct {
		name, key, code string
		damage          func(t *testing.T, dir string)
	}{
		{"a flipped bit in an older backup", "a", "backup_damaged", edit(m.ID+"/OUT_00.part", flip)},
		{"a flipped bit in the list of subjects", "a", "backup_damaged", edit(m2.ID+"/VAULT.live", flip)},
		{"a cut file", "a", "backup_damaged", edit(m2.ID+"/SBX.part", func(b []byte) []byte { return b[:len(b)-1] })},
		{"a flipped bit in the manifest", "a", "backup_damaged", edit(m2.ID+"/manifest", flip)},
		{"a cut manifest", "a", "backup_damaged", edit(m2.ID+"/manifest", func(b []byte) []byte { return b[:len(b)-20] })},
		{"an empty manifest", "a", "backup_damaged", edit(m2.ID+"/manifest", func([]byte) []byte { return nil })},
		{"a manifest of another backup", "a", "backup_damaged", func(t *testing.T, dir string) {
			t.Helper()
			text, err := os.ReadFile(filepath.Join(dir, m.ID, "manifest"))
			if err != nil {
				t.Fatal(err)
			}
			edit(m2.ID+"/manifest", func([]byte) []byte { return text })(t, dir)
		}},
		{"a missing file", "a", "backup_file_missing", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, m.ID, "OUT_00.part")); err != nil {
				t.Fatal(err)
			}
		}},
		{"another key", "b", "backup_key_wrong", func(*testing.T, string) {}},
		{"no damage", "a", "", func(*testing.T, string) {}},
	}
	fresh := start(t, false)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			tt.damage(t, copied)
			m, err := backup.ReadManifest(copied, "", key(t, tt.key))
			if err == nil {
				_, err = backup.Verify(t.Context(), copied, m, key(t, tt.key))
			}
			if tt.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if kind.Code(err) != tt.code {
				t.Errorf("verify: %v (%s), want %s", err, kind.Code(err), tt.code)
			}
			_, err = backup.Restore(t.Context(), backup.RestoreOptions{Target: backup.Target{URL: fresh.url}, Dir: copied, Key: key(t, tt.key)})
			if kind.Code(err) != tt.code {
				t.Errorf("restore: %v, want %s", err, tt.code)
			}
			if all := fresh.messages(t); len(all) != 0 {
				t.Errorf("the restore of a damaged backup stored %d entries", len(all))
			}
		})
	}
}

// A backup that was cut has no manifest. The next one ignores and removes it.
func TestACutBackupDoesNotCount(t *testing.T) {
	s, dir := start(t, true), t.TempDir()
	s.fill(t, 1)
	m := s.backUp(t, dir)
	cut := filepath.Join(dir, "7"+m.ID[1:])
	if err := os.Mkdir(cut, 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := backup.ReadManifest(dir, "", key(t, "a"))
	if err != nil || got.ID != m.ID {
		t.Errorf("the newest backup is %v, %v; want %s", got, err, m.ID)
	}
	s.backUp(t, dir)
	if _, err := os.Stat(cut); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cut backup is still there: %v", err)
	}
}
