package deictic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// tool is a tool of an agent. The model gets its error as the result.
type tool struct {
	llm.Declaration
	run func(ctx context.Context, args json.RawMessage) (output, error)
}

// output is what a tool returns.
type output struct {
	text    string
	picture []byte // a PNG; nil: none
}

// defaultTools are the tools of an agent whose description has none.
var defaultTools = []string{"read_file", "write_file", "list_directory", shellTool}

// shellTool is the tool that runs commands.
const shellTool = "shell_exec"

// aliases are other names of tools, which the catalogue of templates has.
var aliases = map[string]string{"file_read": "read_file", "file_write": "write_file", "shell": "shell_exec", "search": "search_files"}

// schema returns the schema of an object with string properties, of which all are required but those whose
// description ends with "(optional)".
func schema(properties ...[2]string) json.RawMessage {
	type property struct {
		Type        string `json:"type"`
		Description string `json:"description"`
	}
	all := map[string]property{}
	required := []string{}
	for _, p := range properties {
		all[p[0]] = property{Type: "string", Description: p[1]}
		if !slices.Contains(optional, p[0]) {
			required = append(required, p[0])
		}
	}
	b, _ := json.Marshal(map[string]any{"type": "object", "properties": all, "required": required})
	return b
}

// optional are the names of arguments that may be absent.
var optional = []string{"workdir"}

// toolbox makes the tools of agents.
type toolbox struct {
	files  *files
	shell  *shell
	screen *screen // nil: the sandbox has no desktop
}

// tools returns the tools of the given names. Names of tools that do not exist are returned too.
func (b *toolbox) tools(names []string) (out []tool, unknown []string) {
	if names == nil {
		names = defaultTools
	}
	for _, name := range names {
		if other, ok := aliases[name]; ok {
			name = other
		}
		if slices.ContainsFunc(out, func(t tool) bool { return t.Name == name }) {
			continue
		}
		t, ok := b.tool(name)
		if !ok {
			unknown = append(unknown, name)
			continue
		}
		out = append(out, t)
	}
	// A command can use the desktop too, so that these tools allow an agent with commands nothing more.
	if b.screen != nil && slices.ContainsFunc(out, func(t tool) bool { return t.Name == shellTool }) {
		for _, d := range screenTools {
			if t, ok := b.screen.tool(d.name); ok && !slices.ContainsFunc(out, func(o tool) bool { return o.Name == d.name }) {
				out = append(out, t)
			}
		}
	}
	return out, unknown
}

func (b *toolbox) tool(name string) (tool, bool) {
	path := [2]string{"path", "Path of the file, absolute or relative to the working directory."}
	t := tool{Declaration: llm.Declaration{Name: name}}
	switch name {
	case "read_file":
		t.Description, t.Schema = "Read a text file.", schema(path)
		t.run = with(func(_ context.Context, a *struct{ Path string }) (string, error) { return b.files.read(a.Path) })
	case "write_file":
		t.Description = "Write a file, replacing what it contained. Directories that do not exist are created."
		t.Schema = schema(path, [2]string{"content", "The new content of the file."})
		t.run = with(func(_ context.Context, a *struct{ Path, Content string }) (string, error) {
			return b.files.write(a.Path, a.Content)
		})
	case "list_directory":
		t.Description = "List a directory. Names of directories end with a slash; files have their size in bytes."
		t.Schema = schema([2]string{"path", "Path of the directory, absolute or relative to the working directory."})
		t.run = with(func(_ context.Context, a *struct{ Path string }) (string, error) { return b.files.list(a.Path) })
	case "search_files":
		t.Description = "Search the files below a directory for a text. Returns lines as path:number:line."
		t.Schema = schema([2]string{"path", "Path of the directory."}, [2]string{"text", "The text to search for."})
		t.run = with(func(ctx context.Context, a *struct{ Path, Text string }) (string, error) {
			return b.files.search(ctx, a.Path, a.Text)
		})
	case shellTool:
		t.Description = "Run a command in a shell and return its output and exit code. It has no input and ends after 10 minutes at the latest."
		t.Schema = schema([2]string{"command", "The command."}, [2]string{"workdir", "Directory to run it in; default is the working directory."})
		t.run = with(func(ctx context.Context, a *struct{ Command, Workdir string }) (string, error) {
			return b.shell.run(ctx, a.Command, a.Workdir)
		})
	default:
		if b.screen == nil {
			return t, false
		}
		return b.screen.tool(name)
	}
	return t, true
}

// with decodes the arguments of a tool that returns a text.
func with[A any](run func(context.Context, *A) (string, error)) func(context.Context, json.RawMessage) (output, error) {
	return func(ctx context.Context, raw json.RawMessage) (output, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return output{}, fmt.Errorf("the arguments are not valid: %w", err)
		}
		text, err := run(ctx, &a)
		return output{text: text}, err
	}
}
