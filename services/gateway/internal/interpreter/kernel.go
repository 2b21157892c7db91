package interpreter

import (
	_ "embed"
	"encoding/json"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

var (
	//go:embed kernels/kernel.py
	pythonKernel string
	//go:embed kernels/ask.py
	pythonAsk string
	//go:embed kernels/kernel.js
	nodeKernel string
)

// languages are those that there are kernels for, by every name they have.
var languages = map[string]string{
	"python": "python", "bash": "bash",
	"javascript": "javascript", "js": "javascript", "typescript": "typescript", "ts": "typescript",
}

const defaultLanguage = "python"

// parseLanguage gives a language its one name; empty is the default. Its errors
// are Invalid.
func parseLanguage(s string) (string, error) {
	if s == "" {
		return defaultLanguage, nil
	}
	if l, ok := languages[s]; ok {
		return l, nil
	}
	return "", kind.Newf(kind.Invalid, "find kernel", "", "there is no kernel for %q", s)
}

func inNode(language string) bool { return language == "javascript" || language == "typescript" }

// kernelSpec is the process of a context.
func kernelSpec(id, language, cwd string) process.Spec {
	tag := tagOf(id)
	s := process.Spec{Cmd: "python3", Args: []string{"-c", pythonKernel, id, language}, Cwd: cwd, Tag: &tag}
	if inNode(language) {
		s.Cmd, s.Args = "node", []string{"-e", nodeKernel, id, language}
	}
	return s
}

const (
	maxPart = 64 << 10  // bytes of one argument; the kernel's limit is 128 KiB
	maxCode = 512 << 10 // bytes of an execution's code
)

// askSpec is the process of an execution.
func askSpec(id, language, code string, variables map[string]string) (process.Spec, error) {
	if len(code) > maxCode {
		return process.Spec{}, kind.Newf(kind.Invalid, "execute", "", "more than %d bytes of code: put it in a file", maxCode)
	}
	if variables == nil {
		variables = map[string]string{}
	}
	raw, err := json.Marshal(variables)
	if err != nil {
		return process.Spec{}, err
	}
	if len(raw) > maxPart {
		return process.Spec{}, kind.Newf(kind.Invalid, "execute", "", "more than %d bytes of env_vars", maxPart)
	}
	tag := "execution:" + id
	s := process.Spec{Cmd: "python3", Args: []string{"-S", "-E", "-c", pythonAsk, id, string(raw)}, Tag: &tag}
	if inNode(language) {
		s.Cmd, s.Args = "node", []string{"-e", nodeKernel, "ask", id, string(raw)}
	}
	s.Args = append(s.Args, parts(code)...)
	return s, nil
}

// parts cuts code where no rune is torn.
func parts(code string) []string {
	var out []string
	for len(code) > maxPart {
		n := maxPart
		for n > maxPart-utf8.UTFMax && !utf8.RuneStart(code[n]) {
			n--
		}
		out, code = append(out, code[:n]), code[n:]
	}
	return append(out, code)
}
