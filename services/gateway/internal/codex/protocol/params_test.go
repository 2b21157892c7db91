package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// parse parses the parameters of any method.
func parse(method, raw string) (any, error) {
	b := []byte(raw)
	switch method {
	case "initialize":
		return protocol.ParseInitialize(b)
	case "process/start":
		return protocol.ParseStart(b)
	case "process/read":
		return protocol.ParseRead(b)
	case "process/write":
		return protocol.ParseWrite(b)
	case "process/signal":
		return protocol.ParseSignal(b)
	case "process/terminate":
		return protocol.ParseTerminate(b)
	case "fs/copy":
		return protocol.ParseCopy(b)
	case "fs/watchMissing":
		return protocol.ParseWatch(b)
	case "fs/open", "fs/readBlock", "fs/writeBlock", "fs/close":
		return protocol.ParseHandle(method, b)
	case "http/request":
		return protocol.ParseHTTP(b)
	}
	return protocol.ParseFile(method, b)
}

const start = `{"processId":"p","argv":["a"],"cwd":"/tmp","env":{},"tty":false%s}`

// the parameters of all releases, and their errors.
func TestParams(t *testing.T) {
	tests := []struct {
		name, method, raw string
		err               string // a part of the message; empty: valid
	}{
		{"initialize", "initialize", `{"clientName":"c"}`, ""},
		{"initialize with a session", "initialize", `{"clientName":"c","resumeSessionId":"s","more":1}`, ""},
		{"initialize with null", "initialize", `{"clientName":"c","resumeSessionId":null}`, ""},
		{"initialize without a name", "initialize", `{}`, "missing field `clientName`"},
		{"initialize with a null name", "initialize", `{"clientName":null}`, "must not be null"},
		{"initialize with a number", "initialize", `{"clientName":7}`, "must not be a number"},
		{"initialize with a long session", "initialize", `{"clientName":"c","resumeSessionId":"` + strings.Repeat("s", 300) + `"}`, "too long"},
		{"no params", "initialize", ``, "must be an object"},
		{"null params", "initialize", `null`, "must be an object"},
		{"an array", "initialize", `[]`, "must be an object"},

		{"the seed's start", "process/start", `{"processId":"proc-1","argv":["bash","-lc","printf 'ready\\n'"],"cwd":"/tmp","env":{"PATH":"/usr/bin:/bin"},"tty":true,"arg0":null}`, ""},
		{"start of 0.169", "process/start", `{"processId":"1-a","metadata":{"threadId":"t"},"argv":["a"],"cwd":"file:///tmp/x%20y","envPolicy":{"inherit":"core","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]},"env":{},"tty":false,"pipeStdin":true,"arg0":"b","sandbox":null,"enforceManagedNetwork":false,"managedNetwork":null,"networkProxy":null,"credentialProviders":[]}`, ""},
		{"an empty process id", "process/start", strings.Replace(fmt.Sprintf(start, ""), `"p"`, `""`, 1), ""},
		{"a wildcard as process id", "process/start", strings.Replace(fmt.Sprintf(start, ""), `"p"`, `">.*"`, 1), ""},
		{"a process id of 1 MiB", "process/start", strings.Replace(fmt.Sprintf(start, ""), `"p"`, `"`+strings.Repeat("p", 1<<20)+`"`, 1), "the limit is 4096"},
		{"empty argv", "process/start", strings.Replace(fmt.Sprintf(start, ""), `["a"]`, `[]`, 1), "argv must not be empty"},
		{"an empty program", "process/start", strings.Replace(fmt.Sprintf(start, ""), `["a"]`, `[""]`, 1), "argv[0]"},
		{"no argv", "process/start", `{"processId":"p","cwd":"/tmp","env":{},"tty":false}`, "missing field `argv`"},
		{"a string as argv", "process/start", strings.Replace(fmt.Sprintf(start, ""), `["a"]`, `"a"`, 1), "must not be a string"},
		{"a relative cwd", "process/start", strings.Replace(fmt.Sprintf(start, ""), `"/tmp"`, `"tmp"`, 1), "relative URL without a base"},
		{"a cwd of another scheme", "process/start", strings.Replace(fmt.Sprintf(start, ""), `"/tmp"`, `"http://x/tmp"`, 1), "only file URIs"},
		{"no tty", "process/start", `{"processId":"p","argv":["a"],"cwd":"/tmp","env":{}}`, "missing field `tty`"},
		{"no env", "process/start", `{"processId":"p","argv":["a"],"cwd":"/tmp","tty":false}`, "missing field `env`"},
		{"a number in env", "process/start", strings.Replace(fmt.Sprintf(start, ""), `{}`, `{"A":1}`, 1), "must not be a number"},
		{"two process ids", "process/start", fmt.Sprintf(start, `,"processId":"q"`), "duplicate field"},
		{"half an environment policy", "process/start", fmt.Sprintf(start, `,"envPolicy":{"inherit":"all"}`), "missing field `ignoreDefaultExcludes`"},
		{"an unknown environment policy", "process/start", fmt.Sprintf(start, `,"envPolicy":{"inherit":"some","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}`), "inherit must be"},
		{"a managed network", "process/start", fmt.Sprintf(start, `,"enforceManagedNetwork":true`), "not offered"},
		{"a network proxy", "process/start", fmt.Sprintf(start, `,"networkProxy":{"x":1}`), "not offered"},
		{"a sandbox without permissions", "process/start", fmt.Sprintf(start, `,"sandbox":{}`), "missing field `permissions`"},

		{"read", "process/read", `{"processId":"p"}`, ""},
		{"read of 0.140", "process/read", `{"processId":"p","afterSeq":null,"maxBytes":null,"waitMs":null}`, ""},
		{"read after a negative seq", "process/read", `{"processId":"p","afterSeq":-1}`, "must not be a number"},
		{"read after half a seq", "process/read", `{"processId":"p","afterSeq":1.5}`, "must not be a number"},
		{"read of nothing", "process/read", `{}`, "missing field `processId`"},
		{"the seed's write", "process/write", `{"processId":"p","chunk":"aGVsbG8K"}`, ""},
		{"write", "process/write", `{"processId":"p","chunk":"","writeId":"1"}`, ""},
		{"write with an empty id", "process/write", `{"processId":"p","chunk":"","writeId":""}`, "writeId must not be empty"},
		{"write without padding", "process/write", `{"processId":"p","chunk":"aGVsbG8"}`, "not valid base64"},
		{"write with a line end", "process/write", `{"processId":"p","chunk":"aGVs\nbG8K"}`, "not valid base64"},
		{"write in the URL's alphabet", "process/write", `{"processId":"p","chunk":"_-=="}`, "not valid base64"},
		{"write with stray bits", "process/write", `{"processId":"p","chunk":"aGVsbG9="}`, "not valid base64"},
		{"write of a number", "process/write", `{"processId":"p","chunk":1}`, "base64 string"},
		{"interrupt", "process/signal", `{"processId":"p","signal":"interrupt"}`, ""},
		{"another signal", "process/signal", `{"processId":"p","signal":"kill"}`, "unknown signal"},
		{"terminate", "process/terminate", `{"processId":"p"}`, ""},
		{"terminate a number", "process/terminate", `{"processId":1}`, "must not be a number"},

		{"a file", "fs/readFile", `{"path":"file:///a"}`, ""},
		{"a relative file", "fs/readFile", `{"path":"a"}`, "relative URL"},
		{"no file", "fs/getMetadata", `{}`, "missing field `path`"},
		{"write without data", "fs/writeFile", `{"path":"/a"}`, "missing field `dataBase64`"},
		{"walk", "fs/walk", `{"path":"/a","options":{"maxDepth":1,"maxDirectories":2,"maxEntries":3,"followDirectorySymlinks":true}}`, ""},
		{"walk without options", "fs/walk", `{"path":"/a"}`, "missing field `options`"},
		{"copy", "fs/copy", `{"sourcePath":"/a","destinationPath":"file:///b","recursive":false}`, ""},
		{"copy without recursive", "fs/copy", `{"sourcePath":"/a","destinationPath":"/b"}`, "missing field `recursive`"},
		{"open", "fs/open", `{"handleId":"h","path":"/a"}`, ""},
		{"open in another mode", "fs/open", `{"handleId":"h","path":"/a","mode":"append"}`, "mode must be"},
		{"read a block", "fs/readBlock", `{"handleId":"h","offset":0,"len":1048576}`, ""},
		{"an empty block", "fs/readBlock", `{"handleId":"h","offset":0,"len":0}`, "len must be"},
		{"a large block", "fs/readBlock", `{"handleId":"h","offset":0,"len":1048577}`, "len must be"},
		{"a far block", "fs/readBlock", `{"handleId":"h","offset":9223372036854775807,"len":1}`, "offset is too large"},
		{"write a block", "fs/writeBlock", `{"handleId":"h","offset":3,"chunk":"YQ=="}`, ""},
		{"close", "fs/close", `{"handleId":"h"}`, ""},
		{"watch", "fs/watchMissing", `{"watchId":3,"missing":["file:///a"],"present":null}`, ""},
		{"watch half a number", "fs/watchMissing", `{"watchId":3.5,"missing":[]}`, "must be an integer"},

		{"a request", "http/request", `{"method":"GET","url":"https://example.org/","requestId":"r"}`, ""},
		{"a request without an id", "http/request", `{"method":"GET","url":"https://example.org/"}`, "missing field `requestId`"},
		{"another scheme", "http/request", `{"method":"GET","url":"ftp://example.org/","requestId":"r"}`, "only http and https"},
		{"a relative URL", "http/request", `{"method":"GET","url":"/x","requestId":"r"}`, "invalid url"},
		{"a method with a space", "http/request", `{"method":"GET /","url":"http://a/","requestId":"r"}`, "invalid method"},
		{"a header with a line end", "http/request", `{"method":"GET","url":"http://a/","requestId":"r","headers":[{"name":"A","value":"b\r\nC: d"}]}`, "invalid header"},
		{"a header's name with a space", "http/request", `{"method":"GET","url":"http://a/","requestId":"r","headers":[{"name":"A B","value":""}]}`, "invalid header"},
		{"another redirect policy", "http/request", `{"method":"GET","url":"http://a/","requestId":"r","redirectPolicy":"x"}`, "redirectPolicy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.method, tt.raw)
			if tt.err == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams || !strings.Contains(e.Message, tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestStartKeepsWhatWasSent(t *testing.T) {
	p, err := protocol.ParseStart([]byte(`{"processId":"p","argv":["a","b"],"cwd":"file:///tmp/x%20y","env":{"A":"1"},"tty":true,"arg0":""}`))
	if err != nil || p.Cwd != (protocol.Path{Name: "/tmp/x y", Form: fileuri.URI}) || *p.Arg0 != "" || p.Env["A"] != "1" || !p.TTY || len(p.Argv) != 2 {
		t.Errorf("got %+v, %v", p, err)
	}
}

// The data of fs/writeFile is decoded later: its error is an invalid request.
func TestFileContent(t *testing.T) {
	for data, ok := range map[string]bool{"": true, "YQ==": true, "YQ": false, "Y Q==": false, "YQ=\n=": false} {
		p := protocol.FileParams{Data: &data}
		_, err := p.Content()
		var e *jsonrpc.Error
		if (err == nil) != ok || err != nil && (!errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidRequest) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

//
func TestEnvironment(t *testing.T) {
	sandbox := map[string]string{"PATH": "/bin", "HOME": "/home/user", "Api_Key": "k", "MY_TOKEN": "t", "FOO": "f", "LANG": "C"}
	env := map[string]string{"A": "1", "FOO": "mine"}
	policy := func(p protocol.EnvPolicy) *protocol.EnvPolicy { return &p }
	tests := []struct {
		name   string
		policy *protocol.EnvPolicy
		want   map[string]string
	}{
		{"without a policy the environment is complete", nil, map[string]string{"A": "1", "FOO": "mine"}},
		{"none", policy(protocol.EnvPolicy{Inherit: "none"}), map[string]string{"A": "1", "FOO": "mine"}},
		{"core", policy(protocol.EnvPolicy{Inherit: "core"}), map[string]string{"PATH": "/bin", "HOME": "/home/user", "LANG": "C", "A": "1", "FOO": "mine"}},
		{"all without credentials", policy(protocol.EnvPolicy{Inherit: "all"}), map[string]string{"PATH": "/bin", "HOME": "/home/user", "LANG": "C", "A": "1", "FOO": "mine"}},
		{"all", policy(protocol.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}), map[string]string{"PATH": "/bin", "HOME": "/home/user", "LANG": "C", "Api_Key": "k", "MY_TOKEN": "t", "A": "1", "FOO": "mine"}},
		{"exclude", policy(protocol.EnvPolicy{Inherit: "all", Exclude: []string{"l?ng", "*o*E"}}), map[string]string{"PATH": "/bin", "A": "1", "FOO": "mine"}},
		{"set", policy(protocol.EnvPolicy{Inherit: "none", Set: map[string]string{"B": "2", "A": "lost"}}), map[string]string{"B": "2", "A": "1", "FOO": "mine"}},
		{"include only", policy(protocol.EnvPolicy{Inherit: "all", Set: map[string]string{"B": "2"}, IncludeOnly: []string{"P*"}}), map[string]string{"PATH": "/bin", "A": "1", "FOO": "mine"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := protocol.Environment(tt.policy, sandbox, env); !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	hostile := policy(protocol.EnvPolicy{Inherit: "all", Exclude: []string{strings.Repeat("*a", 1000) + "b"}})
	protocol.Environment(hostile, map[string]string{strings.Repeat("a", 10000): ""}, nil) // ends soon
}

// Releases up to 0.140 wrap a command in codex's sandbox program.
func TestCommandsInTheSandboxProgram(t *testing.T) {
	const (
		files   = `{"kind":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"current_working_directory"}},"access":"write"},{"path":{"type":"path","path":"/home/me/.codex/memories"},"access":"write"},{"path":{"type":"path","path":"/w/.codex"},"access":"read"}]}`
		profile = `{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},{"path":{"type":"path","path":"/w/.git"},"access":"read"}]},"network":"restricted"}`
	)
	at := []string{"/opt/codex", "--sandbox-policy-cwd", "/w", "--command-cwd", "/w/sub"}
	command := []string{"--", "/bin/bash", "-lc", "echo --"}
	tests := []struct {
		name string
		args []string
		more string
		want *process.Confinement // nil: refused
	}{
		{"0.118", []string{"--sandbox-policy", `{"type":"workspace-write"}`, "--file-system-sandbox-policy", files, "--network-sandbox-policy", `"restricted"`}, "",
			&process.Confinement{Read: []string{"/", "/w/.codex"}, Write: []string{"/w", "/home/me/.codex/memories"}, Optional: []string{"/w", "/home/me/.codex/memories", "/w/.codex"}}},
		{"0.140", []string{"--permission-profile", profile}, "",
			&process.Confinement{Read: []string{"/", "/w/.git"}, Write: []string{"/w"}, Optional: []string{"/w", "/w/.git"}}},
		{"an unknown argument", []string{"--allow-network-for-proxy", "x", "--permission-profile", profile}, "", nil},
		{"no policy", nil, "", nil},
		{"half a policy", []string{"--file-system-sandbox-policy", files}, "", nil},
		{"a policy that is not JSON", []string{"--file-system-sandbox-policy", "{", "--network-sandbox-policy", `"restricted"`}, "", nil},
		{"a profile that is not JSON", []string{"--permission-profile", "{"}, "", nil},
		{"two policies", []string{"--permission-profile", profile}, `,"sandbox":{"permissions":{"type":"disabled"}}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			argv, err := json.Marshal(slices.Concat(at, tt.args, command))
			if err != nil {
				t.Fatal(err)
			}
			p, err := protocol.ParseStart(fmt.Appendf(nil, `{"processId":"p","argv":%s,"cwd":"/w","env":{},"tty":false,"arg0":"codex-linux-sandbox"%s}`, argv, tt.more))
			var got *process.Confinement
			if err == nil {
				got, err = p.Sandbox.Resolve("")
			}
			if !reflect.DeepEqual(got, tt.want) || (err == nil) != (tt.want != nil) {
				t.Fatalf("got %+v, %v; want %+v", got, err, tt.want)
			}
			if tt.want != nil && (!slices.Equal(p.Argv, command[1:]) || p.Arg0 != nil || p.Cwd.Name != "/w/sub") {
				t.Errorf("argv %q, arg0 %v, cwd %s", p.Argv, p.Arg0, p.Cwd.Name)
			}
		})
	}
	for _, argv := range []string{`["/opt/codex"]`, `["/opt/codex","--"]`, `["/opt/codex","--permission-profile"]`, `["/opt/codex","--permission-profile","{}","true"]`} {
		if p, err := protocol.ParseStart(fmt.Appendf(nil, `{"processId":"p","argv":%s,"cwd":"/w","env":{},"tty":false,"arg0":"codex-linux-sandbox"}`, argv)); err == nil {
			t.Errorf("%s: %+v", argv, p)
		}
	}
}

func TestConfinement(t *testing.T) {
	entries := func(list string) string {
		return `{"type":"managed","file_system":{"type":"restricted","entries":[` + list + `]},"network":"restricted"}`
	}
	const root = `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`
	const roots = `{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`
	tests := []struct {
		name, permissions, more string
		want                    *process.Confinement
		ok                      bool
	}{
		{"read only", entries(root), "", &process.Confinement{Read: []string{"/"}}, true},
		{"workspace write", entries(root + "," + roots + `,{"path":{"type":"special","value":{"kind":"slash_tmp"}},"access":"write"},{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"}`),
			`,"cwd":"file:///w","workspaceRoots":["file:///w","/v"]`, &process.Confinement{Read: []string{"/"}, Write: []string{"/w", "/v", "/tmp", "/var/tmp"}, Optional: []string{"/w", "/v", "/tmp", "/var/tmp"}}, true},
		{"the metadata of a workspace in 0.145", entries(root + `,{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read"},{"path":{"type":"path","path":"/w/a"},"access":"read"}`),
			`,"cwd":"file:///w"`, &process.Confinement{Read: []string{"/", "/w/.git", "/w/a"}, Optional: []string{"/w/.git"}}, true},
		{"a part of each root", entries(`{"path":{"type":"special","value":{"kind":"project_roots","subpath":"../.git"}},"access":"none"}`), `,"cwd":"/w"`, &process.Confinement{Deny: []string{"/w/.git"}}, true},
		{"a path", entries(`{"path":{"type":"path","path":"file:///a%20b"},"access":"write","missing_path_behavior":"skip"}`), "", &process.Confinement{Write: []string{"/a b"}, Optional: []string{"/a b"}}, true},
		{"another behavior for missing paths", entries(`{"path":{"type":"path","path":"/a"},"access":"read","missing_path_behavior":"create"}`), "", nil, false},
		{"with network", strings.Replace(entries(root), `"network":"restricted"`, `"network":"enabled"`, 1), "", &process.Confinement{Read: []string{"/"}, Network: true}, true},
		{"all files without network", `{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`, "", &process.Confinement{Write: []string{"/"}}, true},
		{"disabled", `{"type":"disabled"}`, "", nil, true},
		{"another type", `{"type":"external","network":"restricted"}`, "", nil, false},
		{"another network", strings.Replace(entries(root), `"restricted"}`, `"proxied"}`, 1), "", nil, false},
		{"another special path", entries(`{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"}`), "", nil, false},
		{"a pattern", entries(`{"path":{"type":"glob_pattern","pattern":"*"},"access":"none"}`), "", nil, false},
		{"another access", entries(`{"path":{"type":"path","path":"/a"},"access":"execute"}`), "", nil, false},
		{"a relative path", entries(`{"path":{"type":"path","path":"a"},"access":"read"}`), "", nil, false},
		{"roots without a root", entries(roots), "", nil, false},
		{"a string", `"read-only"`, "", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := protocol.ParseStart(fmt.Appendf(nil, start, `,"sandbox":{"permissions":`+tt.permissions+tt.more+`}`))
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Sandbox.Resolve("/var/tmp")
			if (err == nil) != tt.ok || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
	if c, err := (*protocol.Sandbox)(nil).Resolve(""); c != nil || err != nil {
		t.Errorf("no policy: %v, %v", c, err)
	}
}

func FuzzParams(f *testing.F) {
	f.Add("process/start", fmt.Sprintf(start, ""))
	f.Add("process/start", fmt.Sprintf(start, `,"sandbox":{"permissions":{"type":"managed"}}`))
	f.Add("process/write", `{"processId":"p","chunk":"aGVsbG8K","writeId":"1"}`)
	f.Add("fs/walk", `{"path":"/a","options":{"maxDepth":1}}`)
	f.Add("http/request", `{"method":"GET","url":"http://a/","requestId":"r"}`)
	f.Fuzz(func(t *testing.T, method, raw string) {
		// What reaches the parsers is valid JSON: the members of a parsed message.
		m, err := jsonrpc.Parse([]byte(`{"id":1,"method":"m","params":` + raw + `}`))
		if err != nil {
			return
		}
		p, err := parse(method, string(m.Params))
		if err != nil {
			var e *jsonrpc.Error
			if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams {
				t.Fatalf("error %v", err)
			}
			return
		}
		if s, ok := p.(protocol.StartParams); ok {
			if len(s.Argv) == 0 || !strings.HasPrefix(s.Cwd.Name, "/") || len(s.ProcessID) > protocol.MaxProcessID {
				t.Fatalf("accepted %+v", s)
			}
			if _, err := s.Sandbox.Resolve("/tmp"); err != nil && !errors.As(err, new(*jsonrpc.Error)) {
				t.Fatal(err)
			}
		}
	})
}
