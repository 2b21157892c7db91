package interpreter

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

var (
	//go:embed kernels/output.py
	outputModule string
	//go:embed kernels/serve.py
	serve string
	//go:embed kernels/chart.py
	chartData string
	//go:embed kernels/display.py
	displayModule string
	//go:embed kernels/python.py
	pythonKernel string
	//go:embed kernels/bash.py
	bashKernel string
	//go:embed kernels/child.py
	childKernel string
	//go:embed kernels/kernel.R
	rKernel string
	//go:embed kernels/Kernel.java
	javaKernel string
	//go:embed kernels/client.py
	pythonClient string
	//go:embed kernels/kernel.js
	nodeKernel string
)

// languages maps every name of a language with a kernel to its canonical name.
var languages = map[string]string{
	"python": "python", "bash": "bash", "r": "r", "java": "java",
	"javascript": "javascript", "js": "javascript", "typescript": "typescript", "ts": "typescript",
}

const opKernel = "find kernel"

const defaultLanguage = "python"

// parseLanguage returns the canonical name of a language; empty is the default. Its
// errors are Invalid.
func parseLanguage(s string) (string, error) {
	if s == "" {
		return defaultLanguage, nil
	}
	if l, ok := languages[s]; ok {
		return l, nil
	}
	return "", kind.Newf(kind.Invalid, opKernel, "", "unknown language %q", s)
}

// kernelSpec returns the process of a context. The argument addressArg is its address, by
// which executions find it; the last one is the language.
func kernelSpec(sbx sandbox.ID, id, language, cwd string) process.Spec {
	tag, address := tagOf(id), addressOf(sbx, id)
	s := process.Spec{Cmd: "python3", Cwd: cwd, User: userOf(cwd), Tag: &tag, Helper: true}
	switch language {
	case "javascript", "typescript":
		s.Cmd, s.Args = "node", inNode(address)
	case "bash":
		s.Args = inPython(bashKernel, address)
	case "r":
		s.Args = append(inPython(childKernel, address), rKernel)
	case "java":
		s.Args = append(inPython(childKernel, address), javaKernel)
	default:
		s.Args = inPython(chartData+"\n"+displayModule+"\n"+pythonKernel, address)
	}
	s.Args = append(s.Args, language)
	return s
}

// addressOf returns the address of a context's kernel. Without isolation, several sandboxes
// share one directory of addresses, and each has its default contexts. The kernels of a
// fork keep their original address.
func addressOf(sbx sandbox.ID, id string) string { return string(sbx) + "-" + id }

const addressArg = 2

func inPython(kernel, address string) []string {
	return []string{"-c", outputModule + "\n" + serve + "\n" + kernel + "\nmain()\n", address}
}

func inNode(args ...string) []string {
	return append([]string{"-e", "(function () {" + nodeKernel + "})()"}, args...)
}

// ready is what a kernel prints when it accepts code.
const ready = "ready\n"

// await reads the record of a context's kernel until it is ready. If the template lacks what
// the language requires, the error is Invalid with the kernel's message. Otherwise it is the
// reason why the process did not start, such as a cwd that does not exist.
func await(ctx context.Context, src stream.Source, language string) error {
	const enough = 4 << 10
	var out, stderr []byte
	for {
		batch, err := src.Next(ctx, 0)
		if err != nil {
			return err
		}
		for _, e := range batch {
			switch b := e.Body.(type) {
			case process.Wrote:
				to := &stderr
				if b.Stream == process.Stdout {
					to = &out
				}
				*to = append(*to, b.Data[:min(len(b.Data), enough-min(len(*to), enough))]...)
				if bytes.HasPrefix(out, []byte(ready)) { // followed by output of code
					return nil
				}
			case process.Failed:
				return kind.New(kind.Kind(b.Kind), opKernel, "", b.Message)
			case process.Finished:
				why := strings.TrimSpace(string(bytes.ToValidUTF8(stderr, []byte("?"))))
				return kind.Newf(kind.Invalid, opKernel, "", "the template lacks a kernel for %q: %s", language, cmp.Or(why, string(b.Exit.Cause)))
			case process.Lost:
				return kind.New(kind.Unavailable, opKernel, "", b.Reason)
			default:
				// They are in the record.
			}
		}
	}
}

const (
	maxPart = 64 << 10  // bytes of one argument; Linux allows 128 KiB
	maxArgs = 512 << 10 // bytes of code that are passed as arguments
)

// variablesName is the environment variable with the variables of an execution, as JSON.
const variablesName = "MILLRACE_EXECUTION_VARIABLES"

// asInput reports whether an execution reads its code from standard input: arguments
// cannot contain NUL, and their size is limited.
func asInput(code string) bool { return len(code) > maxArgs || strings.Contains(code, "\x00") }

// execSpec returns the process of an execution. Its code is in the arguments, or read from
// standard input (asInput). Its errors are Invalid.
func execSpec(in *codeContext, code string, variables map[string]string) (process.Spec, error) {
	if err := process.CheckEnv("execute", variables); err != nil {
		return process.Spec{}, err
	}
	raw, err := json.Marshal(variables)
	if err != nil {
		return process.Spec{}, err
	}
	if len(raw) > maxPart {
		return process.Spec{}, kind.Newf(kind.Invalid, "execute", "", "more than %d bytes of env_vars", maxPart)
	}
	tag := "execution:" + in.ID
	s := process.Spec{Cmd: "python3", Args: []string{"-S", "-E", "-c", pythonClient, in.address}, User: in.user, Tag: &tag, Helper: true}
	if len(variables) > 0 { // the log seals environments
		s.Env = map[string]string{variablesName: string(raw)}
	}
	if in.Language == "javascript" || in.Language == "typescript" {
		s.Cmd, s.Args = "node", inNode("client", in.address)
	}
	if asInput(code) {
		s.Stdin = true
		return s, nil
	}
	s.Args = append(s.Args, parts(code)...)
	return s, nil
}

// parts splits code between runes.
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
