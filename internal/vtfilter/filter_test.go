package vtfilter

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

func replayed(s string) string { return string(new(Filter).Replay(nil, []byte(s))) }

func TestReplayRemovesQueries(t *testing.T) {
	for name, s := range map[string]string{
		"ENQ":                         "\x05",
		"DECID":                       "\x1bZ",
		"DA1":                         "\x1b[c\x1b[0c",
		"DA2":                         "\x1b[>c\x1b[>0c",
		"DA3":                         "\x1b[=c",
		"DSR":                         "\x1b[5n",
		"CPR":                         "\x1b[6n\x1b[?6n\x1b[006n",
		"color scheme":                "\x1b[?996n",
		"XTVERSION":                   "\x1b[>q\x1b[>0q",
		"DECRQM":                      "\x1b[?2026$p\x1b[4$p",
		"DECREQTPARM":                 "\x1b[x\x1b[1x",
		"DECRQPSR":                    "\x1b[1$w",
		"DECRQTSR, DECRQUPSS":         "\x1b[1$u\x1b[&u",
		"DECRQCRA":                    "\x1b[1;1;1;1;9;9*y",
		"XTREPORTSGR":                 "\x1b[1;1;2;2#|",
		"XTSMGRAPHICS":                "\x1b[?1;1;0S",
		"XTQMODKEYS":                  "\x1b[?4m",
		"kitty keyboard":              "\x1b[?u",
		"locator":                     "\x1b['|",
		"window reports":              "\x1b[11t\x1b[13t\x1b[14t\x1b[14;2t\x1b[15t\x1b[16t\x1b[18t\x1b[19t\x1b[20t\x1b[21t",
		"window operations":           "\x1b[8;10;10t\x1b[2t",
		"print":                       "\x1b[5i\x1b[?1i",
		"colors":                      "\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]4;1;?\x07\x1b]10;red;?\x07\x1b]5;0;?\x07",
		"clipboard":                   "\x1b]52;c;?\x07\x1b]52;c;aGk=\x07\x1b]5522;type=read\x07",
		"font, iTerm2, pointer":       "\x1b]50;?\x07\x1b]1337;ReportCellSize\x07\x1b]22;?__current__\x07",
		"kitty colors, notifications": "\x1b]21;foreground=?\x07\x1b]99;i=1:p=?;\x1b\\",
		"allowed operations":          "\x1b]60\x07",
		"DECRQSS":                     "\x1bP$qm\x1b\\",
		"XTGETTCAP":                   "\x1bP+q544e\x1b\\",
		"tmux passthrough":            "\x1bPtmux;\x1b\x1b[6n\x1b\\",
		"kitty graphics":              "\x1b_Gi=1,a=q;AAAA\x1b\\",
		"focus, resize reports":       "\x1b[?1004h\x1b[?2048h\x1b[?2031h\x1b[?1004r\x1b[?1004;2048h\x1b[?01004h",
		"Tektronix, VT52":             "\x1b[?38h\x1b[?2l",
		"other encodings":             "\x1b%@\x1b%G",
		"a query within a query":      "\x1b[\x1b[6n\x1b]11;\x1b[6n\x1bP\x1b[c",
		"a control within a query":    "\x1b[6\x05n",
		"a title of screen":           "\x1bktitle\x1b\\",
	} {
		if got := replayed("a" + s + "b"); got != "ab" {
			t.Errorf("%s: %q passes", name, got)
		}
	}
}

func TestReplayLetsDisplayPass(t *testing.T) {
	for name, s := range map[string]string{
		"text":             "plain, tab\t, héllo 世界 🎉\r\n\b\a",
		"styles":           "\x1b[0m\x1b[1;31m\x1b[38;2;1;2;3m\x1b[4:3m\x1b[38:5:1m",
		"cursor":           "\x1b[H\x1b[2;3H\x1b[A\x1b[3d\x1b[5G\x1b7\x1b8\x1b[s\x1b[u\x1b[2 q\x1b[?25l\x1b[?25h",
		"erase and scroll": "\x1b[2J\x1b[3J\x1b[K\x1b[1;24r\x1b[3S\x1b[2T\x1b[L\x1b[M\x1b[P\x1b[@\x1bM\x1bD",
		"screens":          "\x1b[?1049h\x1b[?1049l\x1b[?47h\x1bc\x1b[!p",
		"modes":            "\x1b[?1h\x1b=\x1b>\x1b[?1000h\x1b[?1006;1002h\x1b[?2004h\x1b[?1004l\x1b[4h\x1b[20l\x1b[?2026h",
		"keyboards":        "\x1b[>1u\x1b[<u\x1b[=5;1u\x1b[>4;2m\x1b[>4m",
		"charsets":         "\x1b(B\x1b)0\x0e\x0f\x1b(0",
		"titles":           "\x1b]0;vim what?\x07\x1b]2;x ✜\x1b\\\x1b[22;0t\x1b[23;0t",
		"links, colors":    "\x1b]8;;http://x/?y\x1b\\z\x1b]8;;\x1b\\\x1b]4;1;rgb:ff/00/00\x07\x1b]104\x07\x1b]11;#000000\x07\x1b]111\x07",
		"prompts":          "\x1b]133;A\x07\x1b]7;file://h/tmp\x07",
	} {
		if got := replayed(s); got != s {
			t.Errorf("%s: got %q, want %q", name, got, s)
		}
	}
}

func TestReplayRewrites(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"modes without those that report", "\x1b[?1000;1004;2004h", "\x1b[?1000;2004h"},
		{"bytes that are not UTF-8", "a\xffb\xc3(c\xe2\x82d", "a�b�(c�d"},
		{"C1 controls are no introducers", "\x9b6n \xc2\x9b6n \x9d11;?\x07", "�6n �6n �11;?\x07"},
		{"a control within a sequence takes effect first", "\x1b[1\r\nm", "\r\n\x1b[1m"},
		{"a canceled sequence", "\x1b[6\x18n\x1b]0;t\x1ax", "nx"},
		{"a sequence cut off by text", "\x1b[6é", "é"},
		{"a title with a control", "\x1b]0;a\x05b\x07c", "c"},
		{"a string without its end", "\x1b]11;?\x1b[1mx", "\x1b[1mx"},
		{"a string that is too long", "\x1b]0;" + strings.Repeat("x", maxSequence) + "\x07y", "y"},
	} {
		if got := replayed(tt.in); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A sequence that starts in history and ends in live output is live: it is shown once and
// completely.
func TestLiveCompletesTheUnfinishedSequence(t *testing.T) {
	long := "\x1bP" + strings.Repeat("x", maxSequence)
	for _, tt := range []struct{ name, history, live, want string }{
		{"nothing", "a\x1b[6n", "\x1b[6nb", "a\x1b[6nb"},
		{"a query", "a\x1b[6", "nb", "a\x1b[6nb"},
		{"an introducer", "a\x1b", "]11;?\x07b", "a\x1b]11;?\x07b"},
		{"a string", "a\x1bP$q", "m\x1b\\b", "a\x1bP$qm\x1b\\b"},
		{"a terminator", "a\x1b]11;?\x1b", "\\b", "a\x1b]11;?\x1b\\b"},
		{"a rune", "a\xe4\xb8", "\x96b", "a世b"},
		{"a string that was too long", long, "y\x1b\\b\x1b[6n", "b\x1b[6n"},
		{"one that is canceled", long, "y\x1b[6nb", "\x1b[6nb"},
	} {
		for cut := range len(tt.live) {
			var f Filter
			got := f.Replay(nil, []byte(tt.history))
			got = f.Live(got, []byte(tt.live[:cut]))
			got = f.Live(got, []byte(tt.live[cut:]))
			if string(got) != tt.want {
				t.Errorf("%s, cut after %d: got %q, want %q", tt.name, cut, got, tt.want)
			}
		}
	}
}

// FuzzReplay checks that the output does not depend on how history is split, passes the
// filter unchanged, and contains no sequence that another parser takes for a query.
func FuzzReplay(f *testing.F) {
	for _, s := range []string{
		"a\x1b[6nb\x1b]11;?\x07\x1bP$qm\x1b\\", "\x1b[?1000;1004h\xc2\x9b6n\xff\x9c", "\x1b]0;t\x1b\\\x1b[38:5:1m世",
		"\x1b[\x1b[c\x05\x1bZ\x1b%@", "\x1b]0;✜\x9c\x1b[6n\x07", "\x1b_G\x1b\x1b\\", "\x1b(\x1b[>q",
	} {
		f.Add([]byte(s), uint(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint) {
		whole := new(Filter).Replay(nil, in)
		var cuts Filter
		var parts []byte
		for at := 0; at < len(in); {
			n := min(len(in)-at, 1+int((cut+uint(at))%7))
			parts = cuts.Replay(parts, in[at:at+n])
			at += n
		}
		if !bytes.Equal(parts, whole) {
			t.Fatalf("%q: cut %q, whole %q", in, parts, whole)
		}
		if again := new(Filter).Replay(nil, whole); !bytes.Equal(again, whole) {
			t.Fatalf("%q: first %q, then %q", in, whole, again)
		}
		if !utf8.Valid(whole) {
			t.Fatalf("%q: %q is not UTF-8", in, whole)
		}
		if q := query(whole); q != "" {
			t.Fatalf("%q: %q has a query: %s", in, whole, q)
		}
		at := int(cut % uint(len(in)+1))
		var f Filter
		got := f.Live(f.Replay(nil, in[:at]), in[at:])
		if !bytes.HasSuffix(got, in[at:]) && len(in) < maxSequence { // a longer sequence may be removed
			t.Fatalf("%q: the live %q is not in %q", in, in[at:], got)
		}
	})
}

// query returns the first query in b according to another parser.
func query(b []byte) string {
	found := ""
	p := ansi.NewParser()
	p.SetHandler(ansi.Handler{
		Execute: func(c byte) {
			if c == enq || c >= 0x80 {
				found = "control"
			}
		},
		HandleCsi: func(c ansi.Cmd, _ ansi.Params) {
			if strings.IndexByte("cnxyi", c.Final()) >= 0 && c.Prefix() != '>' && c.Intermediate() == 0 ||
				c.Final() == 'c' || c.Final() == 'p' && c.Intermediate() == '$' || c.Final() == 'q' && c.Prefix() == '>' ||
				c.Final() == 'u' && c.Prefix() == '?' {
				found = "CSI " + string(c.Final())
			}
		},
		HandleEsc: func(c ansi.Cmd) {
			if c.Final() == 'Z' && c.Intermediate() == 0 {
				found = "DECID"
			}
		},
		HandleOsc: func(number int, data []byte) {
			if number >= 4 && number <= 19 && number != 7 && number != 8 && bytes.IndexByte(data, '?') >= 0 || number == 52 {
				found = "OSC " + string(data)
			}
		},
		HandleDcs: func(ansi.Cmd, ansi.Params, []byte) { found = "DCS" },
		HandleApc: func([]byte) { found = "APC" },
		HandlePm:  func([]byte) { found = "PM" },
		HandleSos: func([]byte) { found = "SOS" },
	})
	for _, c := range b {
		p.Advance(c)
	}
	return found
}

func BenchmarkReplay(b *testing.B) {
	in := []byte(strings.Repeat("\x1b[1;32mok\x1b[0m  github.com/millrace/millrace/internal/cli\t0.412s\r\n", 1000))
	out := make([]byte, 0, len(in))
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		out = new(Filter).Replay(out[:0], in)
	}
}
