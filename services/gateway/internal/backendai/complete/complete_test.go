package complete_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/backendai/complete"
)

func TestPrefix(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    complete.Request
		want string
	}{
		{"the code", complete.Request{Code: "import os\nos.pa"}, "os.pa"},
		{"a row", complete.Request{Code: "os.pa\nx", Options: complete.Options{Row: 0, Col: 4}}, "os.p"},
		{"a line", complete.Request{Code: "x", Options: complete.Options{Line: "é.abc", Col: 4}}, "é.ab"},
		{"a column that is too large", complete.Request{Options: complete.Options{Line: "ab", Col: 9}}, "ab"},
		{"a row that does not exist", complete.Request{Code: "a\nb", Options: complete.Options{Row: -1, Col: -1}}, "b"},
		{"nothing", complete.Request{}, ""},
	} {
		if got := tt.r.Prefix(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// B-031: the languages' own programs print completions of what earlier code defined.
func TestCode(t *testing.T) {
	for _, tt := range []struct{ language, program, before, prefix, want string }{
		{"python", "python3", "my_value = 1; print = None", "f(my_va", "my_value"},
		{"python", "python3", "import os", "os.path.joi", "os.path.join"},
		{"python", "python3", "", "impor", "import"},
		{"bash", "bash", "my_function() { :; }", "true; my_func", "my_function"},
		{"bash", "bash", "MY_VARIABLE=1", "echo $MY_VAR", "$MY_VARIABLE"},
		{"bash", "bash", "", "ls /etc/hostn", "/etc/hostname"},
		{"bash", "bash", "", "x 'a;'$(touch /tmp/millrace-completed)", ""},
		{"javascript", "node", "globalThis.myValue = 1;", "myVal", "myValue"},
		{"javascript", "node", "", "f(Math.flo", "Math.floor"},
	} {
		code, ok := complete.Code(tt.language, tt.prefix)
		if !ok {
			if tt.want != "" {
				t.Errorf("%s %q: no code", tt.language, tt.prefix)
			}
			continue
		}
		if _, err := exec.LookPath(tt.program); err != nil {
			continue
		}
		flag := "-c"
		if tt.program == "node" {
			flag = "-e"
		}
		out, err := exec.Command(tt.program, flag, tt.before+"\n"+code).Output()
		if got := complete.Parse(string(out)); err != nil || tt.want != "" && !slices.Contains(got, tt.want) {
			t.Errorf("%s %q: %q, %v; want %q", tt.language, tt.prefix, got, err, tt.want)
		}
	}
	for language, prefix := range map[string]string{"java": "Sys", "python": "x = ", "bash": "ls ", "javascript": "a..b", "python3": "x"} {
		if code, ok := complete.Code(language, prefix); ok {
			t.Errorf("%s %q: %s", language, prefix, code)
		}
	}
}

func TestParse(t *testing.T) {
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "a%d\n\na%d\r\n", i, i)
	}
	if got := complete.Parse(many.String()); len(got) != complete.Max || got[1] != "a1" {
		t.Errorf("%d completions: %q", len(got), got[:2])
	}
}

// No prefix leaves the quotes of the code.
func FuzzCode(f *testing.F) {
	f.Add("$('")
	f.Fuzz(func(t *testing.T, prefix string) {
		code, ok := complete.Code("bash", prefix)
		if ok && strings.Count(strings.ReplaceAll(code, `'\''`, ""), "'")%2 != 0 {
			t.Errorf("%q: %s", prefix, code)
		}
	})
}
