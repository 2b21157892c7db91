package e2e_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// programs holds the commands by which a sandbox uses its network: one runs the script SERVER
// at PORT and prints when it is ready. The other sends REQUEST to the proxy, prints when the
// proxy has connected, sends MORE, and pipes the response to THEN.
type programs struct{ serve, server, client, script string }

// debian returns programs that use perl, and bash for connections.
func debian() programs {
	return programs{
		`exec perl -e "$SERVER" "$PORT"`, server,
		`bash -c "$SCRIPT" 2>/dev/null`, `exec 3<>/dev/tcp/127.0.0.1/3128 || { echo no way out; exit; }
` + exchange("<&3", ">&3"),
	}
}

// busybox returns programs that use nc.
func busybox() programs {
	return programs{
		`cd /tmp && printf '%s\n' "$SERVER" > serve && chmod 755 serve && { nc -ll -p "$PORT" -e ./serve & } &&
until grep -q "$(printf ':%04X ' "$PORT")" /proc/net/tcp*; do :; done; echo ready; wait`, `#!/bin/sh
path= len=0
while read -r line && [ ${#line} -gt 1 ]; do
	case "$line" in
	GET*|POST*) path=${line#* }; path=${path%% *};;
	[Cc]ontent-[Ll]ength:*) len=${line#*: }; len=${len%?};;
	esac
done
head() { printf 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %s\r\n\r\n' "$1"; }
case "$path" in
/echo) busybox head -c "$len" > body.$$; head "$len"; exec cat body.$$;;
/big/*) head "${path#/big/}"; exec busybox head -c "${path#/big/}" /dev/zero;;
*) head 5; printf hello;;
esac`,
		`sh -c "$SCRIPT" 2>/dev/null`, `cd $(mktemp -d) && mkfifo to && exec 3<>to || exit
nc 127.0.0.1 3128 <to | {
` + exchange("", ">&3") + `
}`,
	}
}

// exchange returns the end of a script, which sends and receives on a connection.
func exchange(from, to string) string {
	return `printf '%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n%s' "$REQUEST" "$MORE" ` + to + `
while read -r line ` + from + ` && [ ${#line} -gt 1 ]; do case "$line" in "HTTP/1.1 200"*) echo open;; esac; done
eval "$THEN" ` + from
}

// ask sends a request to the proxy from inside a sandbox.
func (p *programs) ask(t *testing.T, a *rig.API, box, request, then, more string) *rig.Lines {
	t.Helper()
	return a.Commands(t, box, p.client, "envs", map[string]string{"SCRIPT": p.script, "REQUEST": request, "THEN": then, "MORE": more})
}

func (p *programs) egress(t *testing.T, a *rig.API, box, request, then string) string {
	t.Helper()
	lines := p.ask(t, a, box, request, then, "y")
	return strings.TrimPrefix(rig.Output(lines.All(t), "stdout"), "open\n")
}
