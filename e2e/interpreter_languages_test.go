package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// languageChecks returns code and its expected results, run in order in one context.
var languageChecks = map[string][][2]string{
	"typescript": {
		{"import { join } from 'node:path'\nconst n: number = 41; console.log('ts')", "out:ts\n"},
		{"enum E { A = 1 }\nn + E.A", "=42\n"},
		{"const w: string = await Promise.resolve(join('a', 'b')); w", "=a/b\n"},
		{"function f(x: number): never { throw new RangeError('bad ' + x) }\nf(n)", "!RangeError: bad 41\n"},
	},
	"java": {
		{"int x = 41; System.out.println(\"hi\");", "out:hi\n"},
		{"x + 1", "=42\n"},
		{"record P(int a) {}\nvar p = new P(3);\np", "=P[a=3]\n"},
		{"List.of(1, 2).stream().map(n -> n * 2).collect(Collectors.toList())", "=[2, 4]\n"},
		{"int f() { return 1 / 0; }\nf()", "!java.lang.ArithmeticException: / by zero\n"},
		{"int y = \"a\";", "!CompilationError: incompatible types: java.lang.String cannot be converted to int\n"},
		{"\"späße\"", "=späße\n"},
		{"System.exit(3)", "!RuntimeError: the process of jshell ended with code 3\n"},
		{"1 + 1", "=2\n"},
	},
	"r": {
		{"x <- 41; cat('hi\\n')", "out:hi\n"},
		{"x + 1", "=[1] 42\n"},
		{"1; invisible(3); 'späße'", "=[1] 1\n=[1] \"späße\"\n"},
		{"f <- function(n) stop('bad ', n)\nf(3)", "!simpleError: bad 3\n"},
		{"message('m')", "err:m\n"},
		{"quit(status = 3)", "!RuntimeError: the process of R ended with code 3\n"},
		{"1 + 1", "=[1] 2\n"},
	},
}

// Every language keeps definitions between executions, reports values, output and errors,
// and continues after errors. If the template lacks its program, the error names it.
func TestInterpreterLanguages(t *testing.T) {
	t.Parallel()
	a := api(t)
	for language, checks := range languageChecks {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			in := interpreter{a, a.Create(t, "timeout", 300).ID}
			in.need(t, language)
			in.checkLanguage(t, language, checks)
		})
	}
}

// The sandbox's environment variables are Java system properties, as in E2B.
func TestInterpreterVariablesOfTheSandbox(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300, "envVars", map[string]string{"COLOR": "red"}).ID}
	in.need(t, "java")
	if got := summarize(in.run(t, "System.getProperty(\"COLOR\")", "language", "java")); got != "=red\n" {
		t.Errorf("got %q", got)
	}
}

// need skips a test of a language that the sandbox's template does not support.
func (i interpreter) need(t *testing.T, language string) {
	t.Helper()
	ans := i.Do(t, http.MethodPost, "/contexts", map[string]any{"language": language}, i.headers()...)
	if ans.Status == http.StatusBadRequest && strings.Contains(string(ans.Body), "the template lacks a kernel for \\\""+language+"\\\": ") {
		t.Skip(ans)
	}
	if ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
}

// checkLanguage runs a language's checks.
func (i interpreter) checkLanguage(t *testing.T, language string, checks [][2]string) {
	t.Helper()
	for _, c := range checks {
		if got := summarize(i.run(t, c[0], "language", language)); got != c[1] {
			t.Errorf("%s %q: %q, want %q", language, c[0], got, c[1])
		}
	}
	read := map[string]string{"typescript": "process.env.COLOR", "java": "System.getProperty(\"COLOR\")", "r": "Sys.getenv('COLOR', 'none')"}[language]
	if got := summarize(i.run(t, read, "language", language, "env_vars", map[string]string{"COLOR": "r'ed"})); !strings.Contains(got, "r'ed") {
		t.Errorf("%s has no variable: %q", language, got)
	}
	if got := summarize(i.run(t, read, "language", language)); strings.Contains(got, "r'ed") {
		t.Errorf("%s keeps another execution's variable: %q", language, got)
	}
	spin := map[string]string{"java": "while (true) {}", "r": "while (TRUE) {}"}[language]
	if spin == "" {
		return // a busy Node.js is restarted and not interrupted
	}
	keep := map[string]string{"java": "int kept = 7;", "r": "kept <- 7"}[language]
	i.run(t, keep, "language", language)
	i.run(t, "1", "language", language)
	s := i.Stream(t, http.MethodPost, "/execute", map[string]any{"code": spin, "language": language, "timeout_ms": 500}, i.headers()...)
	if rest := s.All(t); rest[len(rest)-1].Type != "end_of_execution" {
		t.Errorf("%s after its timeout: %s", language, raws(rest))
	}
	if got := summarize(i.run(t, "kept", "language", language)); !strings.Contains(got, "7") {
		t.Errorf("%s after an interrupt: %q", language, got)
	}
}

// R has pictures and tables as results too.
func TestInterpreterDrawsInR(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	in.need(t, "r")
	in.draws(t)
}

func (i interpreter) draws(t *testing.T) {
	t.Helper()
	drawn := i.run(t, "plot(1:3); hist(c(1, 2, 2))", "language", "r")
	if len(drawn) != 2 || !strings.HasPrefix(string(drawn[0].PNG), "\x89PNG") || !strings.HasPrefix(string(drawn[1].PNG), "\x89PNG") {
		t.Errorf("drawn: %s", summarize(drawn))
	}
	table := i.run(t, "data.frame(a = 1:2, b = c('x', '<y'))", "language", "r")
	if len(table) != 1 || !table[0].Main || !strings.Contains(table[0].HTML, "<td>&lt;y</td>") || !strings.Contains(table[0].Text, "<y") {
		t.Errorf("a table: %+v", table)
	}
}

// A context starts in its cwd, relative to the user's home. A cwd that does not exist is
// rejected, and the context is not listed.
func TestInterpreterContextsCwd(t *testing.T) {
	t.Parallel()
	a := api(t)
	in := interpreter{a, a.Create(t, "timeout", 300).ID}
	in.run(t, "mkdir -p ~/deep/er; touch ~/plain", "language", "bash")
	for _, tt := range []struct{ cwd, want string }{
		{"deep", "/home/user/deep"}, {"~/deep/er", "/home/user/deep/er"}, {"~", "/home/user"}, {"/tmp/../tmp/", "/tmp"},
	} {
		var made struct{ ID, Cwd string }
		a.Want(t, http.StatusOK, http.MethodPost, "/contexts", map[string]any{"cwd": tt.cwd, "language": "bash"}, in.headers()...).Decode(t, &made)
		if got := summarize(in.run(t, "pwd", "context_id", made.ID)); made.Cwd != tt.want || got != "out:"+tt.want+"\n" {
			t.Errorf("in %q: reported %q, is %q; want %s", tt.cwd, made.Cwd, got, tt.want)
		}
	}
	for cwd, why := range map[string]string{"/nowhere": "does not exist", "nowhere": "does not exist", "~/plain": "is not a directory", "~root": "only one's own home"} {
		for _, language := range []string{"python", "javascript"} {
			ans := a.Do(t, http.MethodPost, "/contexts", map[string]any{"cwd": cwd, "language": language}, in.headers()...)
			if ans.Status != http.StatusBadRequest || !strings.Contains(string(ans.Body), why) {
				t.Errorf("%s in %q: %v; want 400, %s", language, cwd, ans, why)
			}
		}
	}
	var all []rig.Sandbox
	a.Want(t, http.StatusOK, http.MethodGet, "/contexts", nil, in.headers()...).Decode(t, &all)
	if len(all) != 7 {
		t.Errorf("listed %+v; want the two default ones, that of bash and four", all)
	}
}
