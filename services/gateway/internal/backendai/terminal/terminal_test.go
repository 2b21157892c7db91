package terminal_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/backendai/terminal"
)

// B-012, B-013, B-014, B-020: the messages of clients.
func TestParse(t *testing.T) {
	for raw, want := range map[string]terminal.Message{
		`{"type":"stdin","chars":"bHMNAw=="}`:    {Type: terminal.Stdin, Chars: []byte("ls\r\x03")},
		`{"type":"stdin","chars":""}`:            {Type: terminal.Stdin, Chars: []byte{}},
		`{"type":"resize","rows":33,"cols":101}`: {Type: terminal.Resize, Size: process.Size{Rows: 33, Cols: 101}},
		`{"type":"ping"}`:                        {Type: terminal.Ping},
		`{"type":"restart"}`:                     {Type: terminal.Restart},
	} {
		got, err := terminal.Parse([]byte(raw))
		if err != nil || got.Type != want.Type || string(got.Chars) != string(want.Chars) || got.Size != want.Size {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{
		``, `x`, `[]`, `{}`, `{"type":"paste"}`, `{"type":1}`, `{"type":"stdin"}`, `{"type":"stdin","chars":1}`, `{"type":"stdin","chars":"*"}`,
		`{"type":"resize"}`, `{"type":"resize","rows":0,"cols":1}`, `{"type":"resize","rows":1,"cols":-1}`, `{"type":"resize","rows":"x","cols":1}`,
		`{"type":"resize","rows":1,"cols":2147483648}`, `{"type":"resize","rows":1.5,"cols":1}`,
	} {
		if got, err := terminal.Parse([]byte(raw)); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"resize","rows":33,"cols":101}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := terminal.Parse(raw)
		if err == nil && m.Type == terminal.Resize && (m.Size.Rows < 1 || m.Size.Cols > process.MaxWindow) {
			t.Errorf("%s: %+v", raw, m)
		}
	})
}

// B-018: what a client that returns gets.
func TestReplay(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 20_000) // 320,000 bytes
	const cls = "\x1b[H\x1b[2J"
	tests := []struct{ name, history, want string }{
		{"nothing", "", ""},
		{"everything", "a\r\nb \x1b[38;5;196mred\x1b[0m", "a\r\nb \x1b[38;5;196mred\x1b[0m"},
		{"since the last clear", "a" + cls + "b" + cls + "c", cls + "c"},
		{"modes from before", "\x1b[?2004h\x1b[?1h\x1b[?25l\x1b[?25h" + cls + "c", "\x1b[?2004h\x1b[?1h\x1b[?25h" + cls + "c"},
		{"the main screen below vim's", "a" + cls + "b\x1b[?1049h" + cls + "vim", cls + "b\x1b[?1049h" + cls + "vim"},
		{"queries are left out", "a\x1b[6nb\x1b[cc\x1b]11;?\x07d\x05e", "abcde"},
		{"a long history", long, long[len(long)-256<<10+16-(256<<10)%16:]},
		{"a long history in vim", cls + "x" + long + "\x1b[?1049hvim", "\x1b[?1049hvim"},
	}
	for _, tt := range tests {
		got, _ := terminal.Replay([]byte(tt.history))
		if string(got) != tt.want {
			t.Errorf("%s: %d bytes %.80q, want %d bytes %.80q", tt.name, len(got), got, len(tt.want), tt.want)
		}
	}
}

// A sequence that is split between history and live output passes once.
func TestReplayContinuesLive(t *testing.T) {
	for _, all := range []string{"a\x1b[31mb", "aäb", "a\x1b[6nb"} {
		for i := range all {
			got, f := terminal.Replay([]byte(all[:i]))
			got = f.Live(got, []byte(all[i:]))
			if want := all; string(got) != want && !(strings.Contains(all, "6n") && string(got) == "ab") {
				t.Errorf("%q split at %d: %q", all, i, got)
			}
		}
	}
}
