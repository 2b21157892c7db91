package family

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// Name is the name of a family.
type Name string

// The families.
const (
	Millrace  Name = "millrace" // our own protocols
	E2B       Name = "e2b"      // control plane, envd, code interpreter and volumes
	E2A       Name = "e2a"
	BackendAI Name = "backendai"
	Codex     Name = "codex" // exec-server
	Port      Name = "port"  // servers in sandboxes, to which requests are forwarded
)

// Part is a part of a family: paths whose requests are treated alike. The zero value of a
// field is the most common treatment.
type Part struct {
	Family       Name
	Credentials  Credentials
	Query        bool          // ?sandbox= names the sandbox if neither Host nor header does
	Errors       httperr.Shape // form of errors
	Body         Body
	Sandbox      Liveness
	Origin       Origin
	EncodedSlash bool // the path may contain names with an encoded slash
	APIHost      bool // paths of the host of a sandbox do not belong to it
	Catalogue    bool // counts against a limit of its own
	Runtime      bool // served on the runtime's host, see [Hosts]
	PathToken    bool // the last segment of the path is a credential
}

// Credentials is a set of accepted credentials, each with its place in the request. The empty
// set rejects every request.
type Credentials uint16

// Credentials of requests.
const (
	Public        Credentials = 1 << iota // none are required, and none are read
	KeyHeader                             // API key in X-API-KEY
	KeyBearer                             // API key in Authorization: Bearer
	KeyQuery                              // API key in ?api_key=, for reads by clients that cannot set headers
	SandboxHeader                         // token of the sandbox that the request names, in X-Access-Token
	SandboxBearer                         // token of a sandbox, in Authorization: Bearer; it names the sandbox unless the path does
	SandboxQuery                          // the same in ?token=
	FileSignature                         // query of a URL, signed with the sandbox's token
	LinkSignature                         // query of a link for an upload with PUT, which the handler checks
	TrafficHeader                         // token for a sandbox's ports, instead of an absent SandboxHeader
	VolumeBearer                          // token of the volume in the path, in Authorization: Bearer
	UserBearer                            // token of a user, in Authorization: Bearer
	UserRead                              // the same, for GET and HEAD only
	SessionToken                          // token of a conversation, in Authorization: Bearer or ?token=, which the surface checks
	PairSignature                         // signature with the secret of a key pair, which the family's own guard checks
	ShareHeader                           // token of a link for onlookers, in Millrace-Share, for GET and HEAD only
)

// Has reports whether c contains any credential of some.
func (c Credentials) Has(some Credentials) bool { return c&some != 0 }

// Body is the treatment of a request's body.
type Body uint8

// Treatments of bodies.
const (
	Limited  Body = iota // read up to the limit before the handler runs
	Streamed             // read by the handler while it arrives
	Duplex               // read by the handler while it responds
)

// Liveness is the condition that the sandbox of a request must meet.
type Liveness uint8

// Conditions of sandboxes. The last two resume a paused sandbox with autoResume.
const (
	AnyState Liveness = iota
	Resumed           // accepts any state
	Running           // rejects the request with 502 unless the sandbox runs
)

// Origin is the set of web origins whose scripts may send requests.
type Origin uint8

// Sets of origins.
const (
	AnyOrigin Origin = iota // with CORS: access depends on credentials that scripts set themselves
	OwnOrigin               // only the gateway's own
	Unchecked               // left to the server in the sandbox
)

// Ports of every sandbox that the gateway itself serves.
const (
	EnvdPort        = 49983 // data plane
	InterpreterPort = 49999 // code interpreter
)

// Request is what determines the family of a request.
type Request struct {
	Host    string // Host header
	Port    int    // port of a sandbox in E2B's headers, which a Host that names a sandbox overrides; 0: none
	Path    string // as sent
	Upgrade bool   // a WebSocket is requested
	Hosts   Hosts  // the gateway's own host names
}

// Of returns the part that a request belongs to.
func Of(r Request) Part {
	p := of(r)
	if !r.Hosts.serves(&p, r.Host) {
		return nowhere
	}
	return p
}

// of returns the part of a request to a gateway without host names.
func of(r Request) Part {
	port, _, named := ParseHost(r.Host)
	if !named {
		port = r.Port
	}
	path := strings.Trim(r.Path, "/")
	if strings.HasPrefix(r.Path, "//") { // the router does not skip empty segments
		path = "/" + path
	}
	switch {
	case port != 0 && port != EnvdPort && port != InterpreterPort:
		return forwarded
	case path == "" && r.Upgrade && !named:
		return codex
	}
	part := lookUp(path)
	if named && part.APIHost {
		return e2b
	}
	return part
}

// ParseHost parses `<port>-<id>[-client]` from the first label of a host that has at least two.
func ParseHost(host string) (port int, id string, ok bool) {
	first, _, more := strings.Cut(host, ".")
	digits, rest, dash := strings.Cut(first, "-")
	if !more || !dash || len(digits) > 5 || strings.Trim(digits, "0123456789") != "" {
		return 0, "", false
	}
	port, err := strconv.Atoi(digits)
	if err != nil || port < 1 || port > 65535 {
		return 0, "", false
	}
	id, _, _ = strings.Cut(strings.ToLower(rest), "-")
	_, err = sandbox.ParseID(id)
	return port, id, err == nil
}
