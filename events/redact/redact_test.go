package redact_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/redact"
)

func compile(t testing.TB, patterns ...string) *redact.Set {
	t.Helper()
	s, err := redact.Compile(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTextReplacesTheLeftmostLongestMatches(t *testing.T) {
	long := strings.Repeat("x", redact.MaxMatch)
	for _, tt := range []struct {
		name, in, want string
		patterns       []string
	}{
		{"a literal", "a hunter2 b hunter2", "a [redacted] b [redacted]", []string{"hunter2"}},
		{"the case of a literal", "HunTER2!", "[redacted]!", []string{"(?i)hunter2"}},
		{"the longest of two patterns", "abcd abc", "[redacted] [redacted]", []string{"abc", "abcd"}},
		{"a lazy pattern as the longest", "sk-abc;", "[redacted];", []string{"sk-[a-z]+?"}},
		{"a bounded repetition", "k=12345678901", "[redacted]901", []string{"k=[0-9]{4,8}"}},
		{"not a shorter one", "k=123;", "k=123;", []string{"k=[0-9]{4,8}"}},
		{"several lines", "a-BEGIN\nx\nEND-b", "a-[redacted]-b", []string{"(?s)BEGIN.*?END"}},
		{"characters of several bytes", "pässwörd=öä!", "[redacted]!", []string{`p\pLsswörd=\pL+`}},
		{"invalid UTF-8 around it", "\xffhunter2\xc3", "\xff[redacted]\xc3", []string{"hunter2"}},
		{"at most MaxMatch bytes", "sk-" + long, "[redacted]xxx", []string{"sk-x+"}},
		{"adjacent matches", "aaaa", "[redacted][redacted]", []string{"aa"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := compile(t, tt.patterns...)
			if got := s.Text(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for at := range len(tt.in) {
				if got := string(inPieces(s, []byte(tt.in), func(int) int { return at + 1 })); got != tt.want {
					t.Fatalf("in pieces of %d: got %q, want %q", at+1, got, tt.want)
				}
				if len(tt.in) > 100 && at > 8 {
					break
				}
			}
		})
	}
}

func TestCompileRejectsPatternsThatCannotBeUsed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
	}{
		{"a syntax error", []string{"a("}},
		{"the empty pattern", []string{""}},
		{"one that matches the empty text", []string{"a*"}},
		{"a line's beginning", []string{"^a"}},
		{"a word boundary in a group", []string{"(a|b\\b)c"}},
		{"a long pattern", []string{strings.Repeat("a", redact.MaxPattern+1)}},
		{"too many patterns", make([]string, redact.MaxPatterns+1)},
		{"too large a program", []string{"((a|b|c|d|e|f|g){30}){30}", "(([^a]{33}){30}q){1,30}"}},
	} {
		if _, err := redact.Compile(tt.patterns); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if s, err := redact.Compile([]string{strings.Repeat("a", redact.MaxPattern)}); err != nil || s == nil {
		t.Errorf("the longest pattern: %v", err)
	}
}

func TestAStreamHoldsBackOnlyWhatMayBeginAMatch(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		patterns       []string
	}{
		{"a prompt", "user@host:~$ ", "user@host:~$ ", []string{"sk-[a-z0-9]{8}", "hunter2"}},
		{"the beginning of a match", "key sk-ab", "key ", []string{"sk-[a-z0-9]{8}"}},
		{"what was the beginning of a match", "key sk-a!", "key sk-a!", []string{"sk-[a-z0-9]{8}"}},
		{"a match that cannot become longer", "sk-abcdefgh", "[redacted]", []string{"sk-[a-z0-9]{8}"}},
		{"a match that can", "sk-abcdefgh", "", []string{"sk-[a-z0-9]+"}},
		{"a beginning within a match", "ababa", "[redacted]", []string{"ababa", "abx"}},
		{"part of a character", "a\xc3", "a", []string{"x"}},
	} {
		if got := string(compile(t, tt.patterns...).Stream().Append(nil, []byte(tt.in))); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAStreamHoldsBackABoundedAmount(t *testing.T) {
	s := compile(t, "(?s)BEGIN.*END").Stream()
	in := "BEGIN" + strings.Repeat("x", 10*redact.MaxMatch)
	out := s.Append(nil, []byte(in))
	if held := len(in) - len(out); held > redact.MaxMatch {
		t.Errorf("holds back %d bytes, maximum %d", held, redact.MaxMatch)
	}
	if got := string(s.AppendRest(out)); got != in {
		t.Errorf("output differs from the input without a match")
	}
}

// inPieces returns the output for in, cut into pieces of the lengths that next returns.
func inPieces(s *redact.Set, in []byte, next func(left int) int) []byte {
	st := s.Stream()
	var out []byte
	for len(in) > 0 {
		n := min(next(len(in)), len(in))
		out = st.Append(out, in[:n])
		in = in[n:]
	}
	return st.AppendRest(out)
}

func FuzzPiecesGiveTheSameOutput(f *testing.F) {
	sets := []*redact.Set{
		compile(f, "hunter2"), compile(f, "a+b", "ab?c"), compile(f, "(?s)hunt.*b"), compile(f, "[ab]{2,5}c|x.y"),
		compile(f, "(?i)ab(c|cd)(de)?", "é+", "[^a]b"), compile(f, "(ab|a)(bc)?c"),
	}
	f.Add([]byte("aabbccabchunter2xéyab\xc3\xa9\xff"), uint64(1), uint16(0))
	f.Add([]byte("a\n\x80abcabcde"), uint64(7), uint16(9000))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, repeat uint16) {
		in = in[:min(len(in), 200)]
		least := 1
		if n := int(repeat) % (redact.MaxMatch + 600); len(in) > 0 && n > len(in) {
			in = bytes.Repeat(in, n/len(in)+1)
			least += n / 8
		}
		for i, s := range sets {
			whole := inPieces(s, in, func(left int) int { return left })
			r := rand.New(rand.NewPCG(seed, 1))
			most := 1 + r.IntN(1000)
			cut := inPieces(s, in, func(int) int { return least + r.IntN(most) })
			if !bytes.Equal(whole, cut) {
				t.Fatalf("set %d: %q gives %q whole and %q in pieces of at most %d", i, in, whole, cut, most)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	s := compile(b, "sk-[A-Za-z0-9]{20,48}", "hunter2", `gh[pousr]_[A-Za-z0-9]{36}`)
	line := []byte(strings.Repeat("2026-11-27 06:00:00 INFO request served in 12 ms path=/v1/processes\n", 60))
	st, out := s.Stream(), []byte(nil)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		out = st.Append(out[:0], line)
	}
}
