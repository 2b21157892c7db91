package arch

// mod is the module's path.
const mod = "github.com/millrace/millrace"

// rule is a folder and the packages outside of the standard library that it may
// import. A pattern that ends in /... includes the folders below it; a pattern without
// a dot in its first element is a folder of this module.
type rule struct {
	path  string
	may   []string
	std   []string // packages of guarded that it may import
	tests []string // what its tests may import besides
}

// guarded are the packages of the standard library that a folder may import only if its
// rule lists them.
var guarded = []string{"net/http", "os/exec"}

const (
	nats     = "github.com/nats-io/nats.go/..."
	server   = "github.com/nats-io/nats-server/v2/..."
	ulid     = "github.com/oklog/ulid/v2"
	protobuf = "google.golang.org/protobuf/..."
	otel     = "go.opentelemetry.io/otel/..."
	otlp     = "go.opentelemetry.io/proto/otlp/..."
	fiber    = "github.com/gofiber/fiber/v2/..."
	fasthttp = "github.com/valyala/fasthttp/..."
	fws      = "github.com/gofiber/contrib/websocket"
	wsframes = "github.com/fasthttp/websocket"
	compress = "github.com/klauspost/compress/..."
	btree    = "github.com/tidwall/btree"
	bbolt    = "go.etcd.io/bbolt"
	pty      = "github.com/creack/pty"
	sys      = "golang.org/x/sys/unix"
	netlink  = "github.com/vishvananda/netlink"
	netns    = "github.com/vishvananda/netns"
	bpf      = "golang.org/x/net/bpf"
	socks    = "golang.org/x/net/proxy"
	dns      = "golang.org/x/net/dns/dnsmessage"
	vsock    = "github.com/mdlayher/vsock"
	group    = "golang.org/x/sync/errgroup"
	flight   = "golang.org/x/sync/singleflight"
	cobra    = "github.com/spf13/cobra"
	oci      = "github.com/google/go-containerregistry/..."
	bcrypt   = "golang.org/x/crypto/bcrypt"
	gomail   = "github.com/wneessen/go-mail"
	gosmtp   = "github.com/emersion/go-smtp"
	gosasl   = "github.com/emersion/go-sasl"
	chacha   = "golang.org/x/crypto/chacha20poly1305"
	tink     = "github.com/tink-crypto/tink-go/v2/streamingaead/subtle"
	jose     = "github.com/go-jose/go-jose/v4/..."
	metrics  = "github.com/prometheus/client_golang/prometheus/..."
	expfmt   = "github.com/prometheus/common/expfmt"
	awsSign  = "github.com/aws/aws-sdk-go-v2/aws/..."
	minio    = "github.com/minio/minio-go/v7/..."
	yaml     = "sigs.k8s.io/yaml"
	pflag    = "github.com/spf13/pflag"
	ansi     = "github.com/charmbracelet/x/ansi"
	widths   = "github.com/mattn/go-runewidth"

	vocabulary = "events/..."
	gw         = "services/gateway/internal/"
	e2b        = gw + "e2b/internal/"
	hd         = "services/hostd/internal/"
	cl         = "internal/cli/"
)

// testsMay are the packages that all tests may import besides.
var testsMay = []string{vocabulary, group, protobuf, sys, ulid, gw + "surfacetest", gw + "certs/certstest", gw + "core/coretest", gw + "operations", cl + "clitest", hd + "driver/drivertest", "internal/part", ansi, pty}

// rules are the allowed imports. The rule with the longest path that contains a package
// applies; a package without a rule fails the test. Never: one service imports another;
// a package imports main; the client of NATS outside of events/internal/store; fiber outside of gateway; os/exec
// outside of hostd.
var rules = []rule{
	{path: "", may: []string{"internal/app"}},
	{path: "internal/app", may: []string{vocabulary, "services/gateway", "services/scheduler", "services/reaper", "services/hostd", "internal/cli", cl + "client", cl + "command", cl + "output", "internal/execserver", "internal/hosttune", "internal/masterkey", "internal/ops", metrics, cobra, pflag, sys, group}},

	{path: "schema", may: []string{protobuf}},

	{path: "events/kind"},
	{path: "events/seal", may: []string{"events/kind", "events/seal", chacha}},
	{path: "events/keystore", may: []string{"events/internal/store", "events/internal/streams", "events/kind", "events/seal", "schema/...", protobuf}},
	{path: "events/reseal", may: []string{"events/account", "events/bundle", "events/catalog", "events/identity", "events/internal/store", "events/internal/streams", "events/kind", "events/sandbox", "events/seal", "events/webhook", "schema/...", protobuf}},
	{path: "events/build", may: []string{"events/kind", "events/seal"}},
	{path: "events/sandbox", may: []string{"events/kind", "events/redact", "events/seal"}},
	{path: "events/webhook", may: []string{"events/kind", "events/process", "events/sandbox", "events/seal"}},
	{path: "events/field", may: []string{protobuf}},
	{path: "events/frame", may: []string{"events/kind"}},
	{path: "events/bootstrap", may: []string{"events/process"}},
	{path: "events/redact", may: []string{"events/kind"}},
	{path: "events/process", may: []string{"events/field", "events/kind", "events/redact", "events/sandbox", "events/seal", ulid, "schema/...", protobuf}},
	{path: "events/mux", may: []string{"events/kind"}, tests: []string{"github.com/hashicorp/yamux"}},
	{path: "events/file", may: []string{"events/field", "events/kind", "events/process", protobuf}},
	{path: "events/fleet", may: []string{"events/kind"}},
	{path: "events/template", may: []string{"events/kind", "events/seal"}},
	{path: "events", may: []string{"events/attachment", "events/blob", "events/bundlestore", "events/catalog", "events/command", "events/conversation", "events/directory", "events/internal/observe", "events/internal/store", "events/keyframe", "events/keystore", "events/ledger", "events/lives", "events/meter", "events/persistence", "events/record", "events/reseal", "events/seal", "events/share", "events/tally", "events/trail", "events/tunnel", "events/workspace"}, tests: []string{nats}},
	{path: "events/record", may: []string{"events/fleet", "events/internal/observe", "events/internal/codec", "events/internal/store", "events/internal/streams", "events/kind", "events/process"}, tests: []string{nats}},
	{path: "events/catalog", may: []string{"events/blob", "events/build", "events/fleet", "events/identity", "events/internal/codec", "events/internal/fold", "events/internal/proctable", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/record", "events/sandbox", "events/seal", "events/template", "events/webhook", "schema/...", protobuf, group}, tests: []string{nats, "events/internal/finished"}},
	{path: "events/internal/streams"},
	{path: "events/internal/observe"},
	{path: "events/internal/store", may: []string{"events/internal/observe", "events/fleet", "events/internal/restoring", "events/internal/streams", "events/kind", "internal/waiting", nats, ulid}},
	{path: "events/internal/restoring", may: []string{"events/kind", nats}},
	{path: "events/internal/fold", may: []string{"events/internal/store", "events/internal/streams", "events/kind", "internal/waiting", protobuf}, tests: []string{"events/natsd"}},
	{path: "events/internal/finished", may: []string{"events/process", "events/sandbox", btree, compress, ulid}},
	{path: "events/internal/proctable", may: []string{"events/internal/codec", "events/internal/finished", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/sandbox", "schema/...", protobuf, btree, group}},
	{path: "events/command", may: []string{"events/internal/codec", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/sandbox", "schema/...", protobuf}},
	{path: "events/tunnel", may: []string{"events/internal/store", "events/internal/streams", "events/kind", "events/mux", "internal/waiting"}},
	{path: "events/tally", may: []string{"events/internal/store", "events/internal/streams", "events/kind"}},
	{path: "events/attachment", may: []string{"events/fleet", "events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/sandbox", "schema/...", protobuf}},
	{path: "events/account", may: []string{"events/kind", "events/seal"}},
	{path: "events/audit", may: []string{"events/kind"}},
	{path: "events/bundle", may: []string{"events/kind", "events/seal"}},
	{path: "events/bundlestore", may: []string{"events/bundle", "events/internal/codec", "events/internal/store", "events/internal/streams", "events/kind", "events/seal", "schema/...", protobuf}},
	{path: "events/trail", may: []string{"events/audit", "events/internal/store", "events/internal/streams", "events/kind", "schema/...", protobuf}},
	{path: "events/conversation", may: []string{"events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/sandbox", "events/seal", "schema/...", protobuf}},
	{path: "events/directory", may: []string{"events/account", "events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/seal", "schema/...", protobuf}},
	{path: "events/usage", may: []string{"events/kind"}},
	{path: "events/ledger", may: []string{"events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/usage", "schema/...", protobuf}},
	{path: "events/meter", may: []string{"events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/usage", "schema/...", protobuf}},
	{path: "events/share", may: []string{"events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "events/process", "events/sandbox", "schema/...", protobuf}},
	{path: "events/keyframe", may: []string{"events/internal/store", "events/internal/streams", "events/kind", "events/process", "schema/...", protobuf}},
	{path: "events/lives", may: []string{"events/internal/codec", "events/internal/store", "events/internal/streams", "events/process"}},
	{path: "events/persistence", may: []string{"events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/process", "events/sandbox", "schema/...", protobuf}},
	{path: "events/workspace", may: []string{"events/blob", "events/internal/codec", "events/internal/fold", "events/internal/store", "events/internal/streams", "events/kind", "schema/...", btree, protobuf, group}},
	{path: "events/tracing", may: []string{"events/kind", "events/process"}},
	{path: "events/due", may: []string{"events/attachment", "events/sandbox"}},
	{path: "events/blob", may: []string{"events/internal/store", "events/kind", "events/template"}},
	{path: "events/internal/codec", may: []string{"events/build", "events/field", "events/fleet", "events/kind", "events/process", "events/sandbox", "events/seal", "schema/...", protobuf, compress}},
	{path: "events/identity", may: []string{"events/kind", "events/seal", jose}},
	{path: "events/natsd", may: []string{server, nats, "events/fleet", "internal/waiting"}},
	// A backup copies raw streams, and a restore runs before the log can be opened.
	{path: "events/backup", may: []string{"events/internal/codec", "events/internal/restoring", "events/internal/streams", "events/kind", nats, "github.com/nats-io/nats-server/v2/server/archive", compress, protobuf, tink, sys, ulid}, tests: []string{"events/natsd", server}},
	{path: "events/checkup", may: []string{"events/fleet", "events/internal/codec", "events/internal/restoring", "events/internal/streams", "events/kind", nats}},
	{path: "events/eventstest", may: []string{vocabulary, nats}},

	{path: "internal/ops", may: []string{vocabulary, metrics}, std: []string{"net/http"}},
	{path: "services/scheduler", may: []string{vocabulary, "internal/ops", "internal/waiting", group}},
	{path: "services/reaper", may: []string{vocabulary, "internal/ops", "internal/outbound", group}},
	{path: "services/reaper/internal/persist", may: []string{vocabulary, "internal/waiting", "internal/outbound"}, std: []string{"net/http"}},
	{path: "services/reaper/internal/tokens", may: []string{vocabulary}},
	{path: "services/reaper/internal/rekey", may: []string{vocabulary}},
	{path: "services/reaper/internal/deliver", may: []string{vocabulary, "internal/waiting", "internal/outbound", protobuf, otlp}, tests: []string{"github.com/standard-webhooks/standard-webhooks/libraries/go"}, std: []string{"net/http"}},

	{path: "services/gateway", may: []string{vocabulary, "internal/ops", "internal/outbound", gw + "...", fiber, fasthttp, ulid, group}, std: []string{"net/http"}, tests: []string{wsframes, gosmtp, bcrypt}},
	{path: gw + "recovery", may: []string{vocabulary}},
	{path: gw + "latency", may: []string{vocabulary}},
	{path: gw + "core", may: []string{vocabulary, gw + "latency"}},
	{path: gw + "accounts", may: []string{vocabulary, gw + "core", gw + "usertoken", bcrypt}},
	{path: gw + "rotation", may: []string{"events/bundle", "events/kind", "events/sandbox", gw + "bundles", gw + "core", group}},
	{path: gw + "bundles", may: []string{"events/bundle", "events/kind", "events/seal", gw + "core", group}},
	{path: gw + "usertoken", may: []string{"events/account", "events/kind", "events/seal", jose}},
	{path: gw + "payments", may: []string{"events/kind", "events/ledger"}, std: []string{"net/http"}},
	{path: gw + "mail", may: []string{"events/kind", gomail}},
	{path: gw + "peer"},
	{path: gw + "sessiontoken", may: []string{"events/kind", jose}},
	{path: gw + "agents", may: []string{vocabulary, gw + "core", gw + "procs", gw + "stream"}},
	{path: gw + "conversations", may: []string{vocabulary, gw + "attachments", gw + "core", gw + "mounts", gw + "procs", gw + "sessiontoken", gw + "stream", group}},
	{path: gw + "audit", may: []string{"events/attachment", "events/audit", "events/kind", fiber}},
	{path: gw + "e2a", may: []string{"events/account", "events/catalog", "events/kind", gw + "e2a/body", gw + "accounts", gw + "auth", gw + "core", gw + "peer", fiber}},
	{path: gw + "e2a/secrets", may: []string{gw + "e2a/vmid", "events/bundle", "events/sandbox", gw + "auth", gw + "core", gw + "e2a/body", fiber}},
	{path: gw + "e2a/dataplane", may: []string{"events/file", "events/kind", "events/process", "events/sandbox", gw + "e2a/body", gw + "auth", gw + "core", gw + "files", gw + "httpconn", gw + "httperr", gw + "procs", gw + "record", gw + "route", gw + "stream", gw + "textenc", fiber}, tests: []string{gw + "surfacetest", gw + "record/recordtest"}, std: []string{"net/http"}},
	{path: gw + "e2a/catalogue", may: []string{"events/kind", gw + "e2a/body", fiber}},
	{path: gw + "e2a/sessions", may: []string{gw + "e2a/vmid", "events/conversation", "events/frame", "events/kind", "events/process", "events/sandbox", "events/seal", gw + "auth", gw + "conversations", gw + "core", gw + "e2a/body", gw + "recovery", gw + "sessiontoken", gw + "stream", gw + "websocket", fiber}},
	{path: gw + "e2a/dashboard", may: []string{gw + "e2a/vmid", "events/kind", "events/ledger", "events/sandbox", "events/usage", gw + "auth", gw + "e2a/body", gw + "httpconn", gw + "record", fiber}},
	{path: gw + "e2a/body", may: []string{"events/kind", gw + "family", gw + "httpconn", gw + "record", gw + "route", fiber}},
	{path: gw + "e2a/vmid", may: []string{"events/sandbox", gw + "core"}},
	{path: gw + "e2a/sandboxes", may: []string{"events/workspace", gw + "mounts", "events/bootstrap", gw + "agents", gw + "e2a/vmid", "events/fleet", "events/kind", "events/process", "events/sandbox", "events/seal", "events/template", gw + "auth", gw + "core", gw + "e2a/body", gw + "e2b/limits", gw + "family", gw + "httpconn", gw + "procs", gw + "provision", gw + "record", gw + "stream", fiber}, tests: []string{fasthttp}},
	{path: gw + "mounts", may: []string{"events/file", "events/kind", "events/sandbox", "events/workspace", "internal/waiting", "schema/...", gw + "core", gw + "workspaces", group, protobuf}},
	{path: gw + "workspaces", may: []string{"events/kind", "events/workspace", minio}, std: []string{"net/http"}, tests: []string{"github.com/johannesboyne/gofakes3/..."}},
	{path: gw + "workspaces/workspacestest", may: []string{"events/kind", "events/workspace", gw + "workspaces"}},
	{path: gw + "e2a/workspaces", may: []string{"events/kind", "events/workspace", gw + "auth", gw + "e2a/body", gw + "httpconn", gw + "workspaces", fiber}, std: []string{"net/http"}},
	{path: gw + "webhooks", may: []string{vocabulary, gw + "core"}},
	{path: gw + "hosts", may: []string{vocabulary, gw + "core", ulid}},
	{path: gw + "storage", may: []string{vocabulary, gw + "core"}},
	{path: gw + "lifecycle", may: []string{vocabulary, "internal/waiting", gw + "core", gw + "latency", group}},
	{path: gw + "procs", may: []string{vocabulary, "internal/waiting", gw + "core", gw + "latency", gw + "lifecycle", gw + "tracecontext", ulid}},
	{path: gw + "tracecontext", may: []string{"events/process", fiber, otel}, std: []string{"net/http"}},
	{path: gw + "builds", may: []string{vocabulary, gw + "core", gw + "lifecycle"}},
	{path: gw + "bases", may: []string{vocabulary, gw + "core", gw + "builds"}},
	{path: gw + "snapshots", may: []string{vocabulary, gw + "core", gw + "lifecycle", gw + "bases", ulid}},
	{path: gw + "templatestore", may: []string{vocabulary, gw + "core", gw + "builds", gw + "bases", gw + "snapshots"}},
	{path: gw + "provision", may: []string{vocabulary, gw + "core", gw + "latency", gw + "lifecycle", gw + "procs", gw + "snapshots", gw + "recovery"}},
	{path: gw + "operations", may: []string{
		gw + "core", gw + "accounts", gw + "webhooks", gw + "hosts", gw + "storage", gw + "lifecycle", gw + "procs",
		gw + "builds", gw + "bases", gw + "snapshots", gw + "templatestore", gw + "provision",
	}, tests: []string{gw + "record"}},
	{path: gw + "certs"},
	{path: gw + "certs/certstest"},
	{path: gw + "httpconn", may: []string{"events/kind", "events/mux", gw + "recovery", sys, fiber, fasthttp}, std: []string{"net/http"}},
	{path: gw + "stream", may: []string{vocabulary, gw + "httpconn", fiber}},
	{path: gw + "websocket", may: []string{"events/kind", gw + "httpconn", gw + "recovery", gw + "stream", gw + "tracecontext", fiber, fws, wsframes}},
	{path: gw + "templates", may: []string{vocabulary, "internal/part", gw + "core", gw + "templatestore", gw + "auth", fiber}},
	// Builds import images, as the client does.
	{path: gw + "builder", may: []string{vocabulary, "internal/waiting", "schema/...", "internal/image", "internal/part", gw + "core", gw + "bases", gw + "builds", gw + "procs", gw + "snapshots", gw + "recovery", awsSign, compress, protobuf, ulid}, std: []string{"net/http"}},
	{path: gw + "screen", may: []string{ansi + "/parser", widths}},
	{path: gw + "screens", may: []string{vocabulary, gw + "auth", gw + "core", gw + "record", gw + "recovery", gw + "screen", gw + "stream", gw + "textenc", compress, fiber}, tests: []string{gw + "record/recordtest"}},
	{path: gw + "textenc", may: []string{vocabulary}},
	{path: gw + "httperr", may: []string{vocabulary, fiber, fasthttp}, std: []string{"net/http"}},
	{path: gw + "metrics", may: []string{vocabulary, "internal/ops", gw + "auth", gw + "webhooks", gw + "latency", fiber, metrics, expfmt}},
	// What determines the treatment of a request depends on the request alone.
	{path: gw + "family", may: []string{"events/sandbox", gw + "httperr"}},
	{path: gw + "route", may: []string{vocabulary, gw + "family", gw + "httperr", fiber}},
	{path: gw + "auth", may: []string{vocabulary, gw + "core", gw + "family", gw + "httpconn", gw + "httperr", gw + "route", fiber}, std: []string{"net/http"}},
	{path: gw + "surfacetest", may: []string{vocabulary, "schema/...", gw + "...", fiber, fasthttp, protobuf}, std: []string{"net/http"}},
	// Each resource of E2B's API has its own handler; package e2b has the routes.
	{path: gw + "e2b", may: []string{"events/sandbox", gw + "operations", gw + "e2b/...", fiber}},
	{path: gw + "e2b/limits", may: []string{"events/sandbox", e2b + "wire"}},
	{path: e2b + "wire", may: []string{"events/kind", "events/sandbox", gw + "core", gw + "record", fiber}},
	{path: e2b + "builds", may: []string{vocabulary, e2b + "wire", gw + "e2b/limits", gw + "auth", gw + "builder", gw + "builds", gw + "core", gw + "httpconn", gw + "recovery", gw + "templatestore", fiber}},
	{path: e2b + "envd", may: []string{vocabulary, e2b + "usage", e2b + "wire", gw + "auth", gw + "core", gw + "family", gw + "httperr", gw + "lifecycle", gw + "route", fiber}},
	{path: e2b + "logs", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "record", gw + "route", fiber}},
	{path: e2b + "sandboxes", may: []string{vocabulary, e2b + "wire", gw + "e2b/limits", gw + "auth", gw + "core", gw + "httpconn", gw + "httperr", gw + "lifecycle", gw + "paging", gw + "provision", gw + "record", gw + "route", gw + "snapshots", fiber}},
	{path: e2b + "secrets", may: []string{"events/catalog", e2b + "wire", gw + "auth", gw + "core", gw + "paging", fiber}},
	{path: e2b + "snapshots", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "paging", gw + "route", fiber}},
	{path: e2b + "teams", may: []string{vocabulary, e2b + "wire", gw + "accounts", gw + "auth", gw + "core", fiber}},
	{path: e2b + "templates", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "paging", gw + "templatestore", fiber}},
	{path: e2b + "usage", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "lifecycle", gw + "route", fiber}},
	{path: e2b + "volumes", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "httperr", fiber}},
	{path: e2b + "webhooks", may: []string{vocabulary, e2b + "wire", gw + "auth", gw + "core", gw + "route", gw + "webhooks", fiber}},
	{path: gw + "attachments", may: []string{"events/attachment", "events/due", "events/kind", "events/sandbox", "internal/waiting", group}},
	// A session of a codex client knows neither HTTP nor the log: its tests compile in seconds.
	{path: gw + "codex/jsonrpc"},
	{path: gw + "codex", may: []string{"events/attachment", "events/kind", "events/sandbox", gw + "attachments", gw + "auth", gw + "codex/backend", gw + "codex/jsonrpc", gw + "codex/session", gw + "core", gw + "stream", gw + "websocket", fiber}, tests: []string{fasthttp}},
	// Sessions and signatures of Backend.AI are computed from requests and states alone.
	{path: gw + "backendai", may: []string{vocabulary, "schema/...", protobuf, "internal/waiting", gw + "auth", gw + "backendai/...", gw + "core", gw + "family", gw + "httpconn", gw + "interpreter", gw + "lifecycle", gw + "procs", gw + "rate", gw + "record", gw + "recovery", gw + "route", gw + "stream", gw + "textenc", gw + "websocket", fiber, group}, std: []string{"net/http"}},
	{path: gw + "backendai/signature", may: []string{"events/kind"}},
	{path: gw + "backendai/complete"},
	{path: gw + "backendai/sse", may: []string{"events/catalog", "events/kind", "events/process", "events/sandbox", "events/webhook", gw + "backendai/session", gw + "textenc"}, tests: []string{gw + "stream", fiber}},
	{path: gw + "backendai/terminal", may: []string{"events/kind", "events/process", "internal/vtfilter", gw + "websocket"}},
	{path: gw + "backendai/files", may: []string{"events/kind"}},
	{path: gw + "backendai/run", may: []string{"events/kind", "events/process"}},
	{path: gw + "backendai/session", may: []string{"events/kind", "events/process", "events/sandbox", "events/template"}},
	{path: gw + "backendai/apps", may: []string{"events/kind", "events/mux", gw + "recovery", gw + "stream", gw + "websocket"}, tests: []string{"events/eventstest", gw + "httpconn", fiber, wsframes}},
	{path: gw + "codex/fileuri", may: []string{gw + "codex/jsonrpc"}},
	{path: gw + "codex/protocol", may: []string{"events/process", gw + "codex/jsonrpc", gw + "codex/fileuri"}},
	{path: gw + "codex/session", may: []string{"events/kind", "events/process", "internal/waiting", gw + "codex/jsonrpc", gw + "codex/fileuri", gw + "codex/protocol", gw + "recovery"}},
	{path: gw + "codex/httpclient", may: []string{"events/kind", gw + "codex/protocol", gw + "codex/session"}, std: []string{"net/http"}},
	{path: gw + "codex/backend", may: []string{vocabulary, "internal/waiting", "schema/...", gw + "codex/httpclient", gw + "codex/protocol", gw + "codex/session", gw + "core", gw + "procs", gw + "stream", gw + "record/recordtest", protobuf}},
	{path: gw + "openapi", may: []string{fiber, yaml}},
	{path: gw + "rate", may: []string{"events/tally", group}},
	{path: gw + "paging", may: []string{"events/kind", fiber}},
	// All other packages of the gateway are surfaces, or serve surfaces.
	{path: "services/gateway/internal", may: []string{
		vocabulary, "schema/...", gw + "...", fiber, fasthttp, compress, protobuf, ulid,
	}, std: []string{"net/http"}},

	{path: "services/hostd", may: []string{vocabulary, hd + "...", "internal/ops", "internal/ownaddr", "internal/waiting", sys, group, ulid}, std: []string{"os/exec"}},
	{path: "services/hostd/internal", may: []string{vocabulary, "internal/waiting", hd + "...", protobuf, "schema/...", pty, sys, group}, std: []string{"os/exec"}},
	// Parts of a host: none imports the packages that are above it here.
	{path: hd + "sandboxes", may: []string{
		vocabulary, "internal/waiting", group, hd + "audit", hd + "commands", hd + "cpushare", hd + "disk", hd + "driver", hd + "drivers", hd + "helperbin",
		hd + "instances", hd + "journal", hd + "lease", hd + "link", hd + "machine", hd + "network", hd + "prefetch", hd + "rmtree", hd + "session", hd + "snapshots",
		hd + "templates", hd + "volumes", hd + "warmpool", hd + "wire",
	}},
	{path: hd + "session", may: []string{vocabulary, "internal/waiting", hd + "commands", hd + "driver", hd + "fair", hd + "link", hd + "wire"}},
	{path: hd + "network", may: []string{vocabulary, "internal/outbound", "internal/ownaddr", hd + "driver", hd + "egress", hd + "link", hd + "veth", hd + "wire"}},
	{path: hd + "instances", may: []string{"events/kind", "events/sandbox", group, hd + "disk", hd + "driver", hd + "drivers", hd + "helperbin", hd + "journal", hd + "templates"}},
	{path: hd + "lease", may: []string{vocabulary, "internal/waiting", hd + "disk", hd + "drivers", hd + "journal", hd + "machine"}},
	{path: hd + "prefetch", may: []string{vocabulary, "internal/waiting", hd + "disk", hd + "snapshots", hd + "templates"}},
	{path: hd + "hostmetrics", may: []string{"internal/cpustat", hd + "disk", hd + "machine", hd + "warmpool", metrics}},
	{path: hd + "ports", may: []string{vocabulary, hd + "wire"}},
	{path: hd + "audit", may: []string{vocabulary, "internal/waiting"}},
	{path: hd + "commands", may: []string{vocabulary, hd + "cursor"}},
	{path: hd + "cursor"},
	{path: hd + "fair"},
	{path: hd + "link", may: []string{vocabulary, hd + "shim", hd + "wire", protobuf, sys}, std: []string{"os/exec"}},
	{path: hd + "files", may: []string{vocabulary, "schema/...", protobuf, sys}},
	{path: hd + "helperbin", may: []string{hd + "flock"}, std: []string{"os/exec"}},
	{path: hd + "flock", may: []string{sys}},
	{path: hd + "disk", may: []string{"events/kind", "events/sandbox", "internal/waiting", hd + "driver", hd + "driver/usage", sys, group}},
	{path: hd + "cpushare", may: []string{"events/kind", "events/sandbox", "internal/cpustat", hd + "driver", hd + "schedtick"}, std: []string{"os/exec"}},
	{path: hd + "templates", may: []string{"events/kind", "events/template", "internal/part", hd + "rmtree", sys, group}},
	{path: hd + "drivers", may: []string{"events/kind", "internal/waiting", hd + "driver/...", hd + "helperbin"}},
	{path: hd + "machine"},
	{path: hd + "spool", may: []string{sys}},
	{path: hd + "journal", may: []string{"events/field", "events/kind", "events/sandbox", "events/template", hd + "drivers", hd + "templates", bbolt, bbolt + "/errors", protobuf}},
	{path: hd + "volumes", may: []string{vocabulary, hd + "driver", hd + "files", hd + "rmtree"}},
	{path: hd + "snapshots", may: []string{vocabulary, hd + "drivers", hd + "rmtree", hd + "templates"}},
	{path: hd + "warmpool", may: []string{"events/kind", "events/sandbox", "events/template", "internal/waiting", group, hd + "driver", hd + "drivers", hd + "templates"}},
	{path: hd + "shim", may: []string{"events/bootstrap", "events/mux", hd + "confine", hd + "driver/microvm/vminit", hd + "fifolink", hd + "files", hd + "reseed", hd + "sigguard", hd + "shim/internal/...", hd + "spawn/spawntest", hd + "wire", sys, vsock}},
	{path: hd + "shim/internal/session", may: []string{"events/kind", "events/mux", hd + "shim/internal/output", hd + "wire", sys}},
	{path: hd + "shim/internal/procs", may: []string{"events/file", "events/kind", "events/process", "events/redact", hd + "confine", hd + "files", hd + "shim/internal/children", hd + "shim/internal/oom", hd + "shim/internal/output", hd + "shim/internal/users", hd + "spawn", hd + "stdio", hd + "wire", sys}},
	{path: hd + "shim/internal/output", may: []string{"events/process", "events/redact", hd + "wire", sys}},
	{path: hd + "shim/internal/regular"},
	{path: hd + "shim/internal/users", may: []string{"events/kind", hd + "shim/internal/regular"}},
	{path: hd + "shim/internal/oom", may: []string{sys}},
	{path: hd + "shim/internal/network", may: []string{"events/kind", "events/mux", hd + "shim/internal/regular", hd + "wire"}},
	{path: hd + "shim/internal/children", may: []string{"internal/waiting", hd + "procstat", hd + "shim/internal/oom", hd + "spawn", sys}},
	{path: hd + "agentrun", may: []string{"events/bootstrap"}, std: []string{"os/exec"}},
	{path: hd + "convruntime", may: []string{"events/bootstrap", "events/frame", "events/kind", hd + "agentrun", hd + "desktop", sys}, std: []string{"os/exec"}, tests: []string{hd + "deictic"}},
	{path: hd + "deictic", may: []string{"events/bootstrap", hd + "deictic/llm", hd + "desktop"}, std: []string{"net/http", "os/exec"}}, // it calls models and runs commands, also on the desktop
	{path: hd + "deictic/llm", std: []string{"net/http"}},
	{path: hd + "agentexec", may: []string{sys}},
	{path: hd + "desktop", may: []string{"events/kind"}, std: []string{"os/exec"}},
	{path: hd + "confine", may: []string{"events/kind", "events/process", hd + "spawn", bpf, sys}},
	{path: hd + "spawn", may: []string{hd + "spawn/spawntest", bpf, sys}, std: []string{"os/exec"}},
	{path: hd + "rmtree", may: []string{sys}},
	{path: hd + "sudo", may: []string{sys}},
	{path: hd + "egress", may: []string{vocabulary, "internal/ownaddr", socks}, std: []string{"net/http"}},
	{path: hd + "veth", may: []string{vocabulary, netlink, netns, sys}, std: []string{"os/exec"}},
	// Firecracker's API is HTTP over a unix socket.
	{path: hd + "driver/microvm", may: []string{vocabulary, hd + "...", sys, group}, std: []string{"net/http", "os/exec"}},
	{path: "services/hostd/cmd", may: []string{"events/bootstrap", hd + "..."}},

	// The client uses the public protocols only. It imports the template format because it
	// makes templates.
	{path: "internal/cli", may: []string{cl + "admin", cl + "bench", cl + "command", cl + "output", cl + "processes", cl + "sandboxes", cl + "shares", cl + "templates", cobra, cobra + "/doc", pflag}},
	{path: cl + "output", may: []string{"internal/vtfilter", sys}},
	{path: cl + "client", may: []string{"events/template", "internal/waiting", sys}, std: []string{"net/http"}},
	{path: cl + "command", may: []string{cl + "client", cl + "output", cobra, pflag}, std: []string{"net/http"}},
	{path: cl + "processes", may: []string{cl + "client", cl + "command", cl + "output", cobra, sys}, std: []string{"net/http"}},
	{path: cl + "sandboxes", may: []string{cl + "client", cl + "command", cl + "output", cobra, sys, group}, std: []string{"net/http"}},
	{path: cl + "shares", may: []string{cl + "client", cl + "command", cobra}},
	{path: cl + "templates", may: []string{cl + "client", cl + "command", cl + "output", "events/template", "internal/image", "internal/part", "internal/waiting", cobra, group}, std: []string{"net/http"}},
	{path: cl + "admin", may: []string{"events/audit", cl + "client", cl + "command", cl + "output", "internal/hosttune", "internal/masterkey", "internal/waiting", cobra, sys}},
	{path: cl + "codexclient", may: []string{wsframes}, std: []string{"net/http", "os/exec"}}, // os/exec: an exec-server
	{path: cl + "backendclient", may: []string{wsframes}, std: []string{"net/http"}},
	{path: cl + "e2aclient", may: []string{cl + "client", wsframes}, std: []string{"net/http"}},
	{path: cl + "bench", may: []string{cl + "client", cl + "codexclient", cl + "backendclient", cl + "e2aclient", cl + "command", "internal/cpustat", "internal/hostload", "internal/waiting", cobra, group}, std: []string{"net/http", "os/exec"}}, // os/exec: the servers that it compares
	{path: cl + "clitest", may: []string{cl + "client"}, std: []string{"net/http"}},
	{path: "internal/vtfilter"},
	// Building templates starts programs on the client's machine.
	{path: "internal/image", may: []string{"events/kind", "events/template", "internal/part", oci, compress}, std: []string{"os/exec", "net/http"}},
	{path: "internal/execserver", may: []string{wsframes}, std: []string{"net/http"}},
	{path: "internal/counts", tests: []string{"services/gateway", "services/scheduler", "services/hostd", cl + "client"}}, // its tests compose the services
	{path: "internal/cpustat"},
	{path: "internal/ownaddr"},
	{path: "internal/outbound", may: []string{"events/kind", "events/sandbox", "internal/ownaddr"}, std: []string{"net/http"}, tests: []string{dns}},
	{path: "internal/waiting"},
	{path: "internal/hostload", std: []string{"os/exec"}},                                // loads that bench measures against
	{path: "internal/masterkey", may: []string{"events/seal"}, std: []string{"os/exec"}}, // --master-key-command
	{path: "internal/hosttune", may: []string{sys}},
	{path: "internal/part", may: []string{"events/kind", "events/template", compress}},
	{path: "internal/arch", may: []string{"golang.org/x/tools/go/packages"}},
}
