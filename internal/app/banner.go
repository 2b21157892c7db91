package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway"
)

// banner is the text that `up` prints once it is ready.
type banner struct {
	version, url, key, data string
	masterKey               string // where it lies
	self                    string // shell command that runs this program with this data directory
	took                    time.Duration
	drivers, isolations     []string // available now; the first is the default
	pending                 string   // driver that becomes available later; empty without one
	pendingErr              error    // why the pending driver cannot be built
	enforced                []string // limits that each driver enforces, separated by spaces
	egress                  bool     // sandboxes may reach public addresses
}

// text returns the banner. Each command in it can be copied and run repeatedly.
func (b *banner) text() string {
	curl := fmt.Sprintf(`curl -sS %[1]s/sandboxes -H 'X-API-KEY: %[2]s' -d '{"templateID":"base","timeout":300}' | sed 's/.*"sandboxID":"\([^"]*\)".*/\1/' | xargs -I@ curl -sSN '%[1]s/commands?sandbox=@' -H 'X-API-KEY: %[2]s' -d '{"cmd":"echo hello; uname -a"}'`, b.url, b.key)
	js := fmt.Sprintf(`npm i e2b && E2B_API_KEY=%s E2B_API_URL=%[2]s E2B_SANDBOX_URL=%[2]s node --input-type=module -e 'import { Sandbox } from "e2b"; const s = await Sandbox.create(); console.log((await s.commands.run("echo hello; uname -a")).stdout); await s.kill()'`, b.key, b.url)
	return fmt.Sprintf(`millrace is up: %s (version %s, in %v)

  key      %s
  data     %s
  master   %s
  driver   %s
  network  %s
  limits   %s
  stop     Ctrl-C ends all sandboxes; after SIGTERM or a crash they keep running, and the next start adopts them
  docs     %s

curl (NDJSON):
  %s

E2B JS SDK:
  %s

millrace:
  %s run 'echo hello; uname -a'
`, b.url, b.version, b.took, b.key, b.data, b.masterKey, b.driver(), b.network(), b.limits(), gateway.DocsURL, curl, js, b.self)
}

// driver returns the current default driver and the pending one.
func (b *banner) driver() string {
	if len(b.drivers) == 0 {
		return "none"
	}
	text := b.drivers[0]
	if len(b.isolations) > 0 {
		text += fmt.Sprintf(" (isolation: %s)", b.isolations[0])
	}
	switch {
	case b.pending == "" || slices.Contains(b.drivers, b.pending):
		return text
	case b.pendingErr != nil:
		return text + fmt.Sprintf("\n           WARNING: %s is not available: %s", b.pending, strings.TrimSpace(b.pendingErr.Error()))
	}
	return text + fmt.Sprintf("; %s is being built in the background and becomes the default when it is ready", b.pending)
}

func (b *banner) network() string {
	if b.egress {
		return "sandboxes may reach public addresses"
	}
	return "sandboxes have none; --egress internet allows public addresses"
}

// limits lists the limits that the default driver does not enforce on this machine.
func (b *banner) limits() string {
	var has, missing []string
	if len(b.enforced) > 0 {
		has = strings.Fields(b.enforced[0])
	}
	for _, l := range sandbox.AllLimits() {
		if !slices.Contains(has, string(l)) {
			missing = append(missing, string(l))
		}
	}
	if len(missing) == 0 {
		return "cpu, memory, disk and pids are enforced"
	}
	return "not enforced here: " + strings.Join(missing, ", ") + "; sandboxes that require one are rejected (millrace doctor shows why)"
}
