package protocol

// The methods.
const (
	Initialize         = "initialize"
	Initialized        = "initialized" // a notification of the client
	ProcessStart       = "process/start"
	ProcessRead        = "process/read"
	ProcessWrite       = "process/write"
	ProcessSignal      = "process/signal"
	ProcessTerminate   = "process/terminate"
	FSReadFile         = "fs/readFile"
	FSWriteFile        = "fs/writeFile"
	FSCreateDirectory  = "fs/createDirectory"
	FSGetMetadata      = "fs/getMetadata"
	FSCanonicalize     = "fs/canonicalize"
	FSReadDirectory    = "fs/readDirectory"
	FSWalk             = "fs/walk"
	FSRemove           = "fs/remove"
	FSCopy             = "fs/copy"
	FSOpen             = "fs/open"
	FSReadBlock        = "fs/readBlock"
	FSWriteBlock       = "fs/writeBlock"
	FSClose            = "fs/close"
	FSWatchMissing     = "fs/watchMissing"
	EnvironmentInfo    = "environment/info"
	EnvironmentStatus  = "environment/status"
	EnvironmentConfig  = "environmentConfig/read"
	CapabilityRoots    = "capabilityRoots/discoverV1"
	CapabilitiesV2     = "capabilities/discoverV2"
	HTTPRequest        = "http/request"
	NetworkRequest     = "network/policyRequest"
	NetworkDecision    = "network/policyDecision"
	NoteOutput         = "process/output" // from here on notifications of the server
	NoteExited         = "process/exited"
	NoteClosed         = "process/closed"
	NoteBodyDelta      = "http/request/bodyDelta"
	NoteMissingChanged = "fs/missingChanged"
)

// Method is a method of a release.
type Method struct {
	Name    string
	Since   string // the first release
	Group   string // its name in errors about the handshake
	Offered bool
}

const (
	groupExec         = "exec"
	groupFilesystem   = "filesystem"
	groupInfo         = "environment info"
	groupStatus       = "environment status"
	groupConfig       = "environment config"
	groupCapabilities = "capability discovery"
	groupHTTP         = "http"
	groupNetwork      = "network policy"
)

var methods = []Method{
	{Initialize, "0.117", "", true},
	{ProcessStart, "0.117", groupExec, true},
	{ProcessRead, "0.117", groupExec, true},
	{ProcessWrite, "0.117", groupExec, true},
	{ProcessSignal, "0.140", groupExec, true},
	{ProcessTerminate, "0.117", groupExec, true},
	{FSReadFile, "0.120", groupFilesystem, true},
	{FSWriteFile, "0.120", groupFilesystem, true},
	{FSCreateDirectory, "0.120", groupFilesystem, true},
	{FSGetMetadata, "0.120", groupFilesystem, true},
	{FSCanonicalize, "0.140", groupFilesystem, true},
	{FSReadDirectory, "0.120", groupFilesystem, true},
	{FSWalk, "0.145", groupFilesystem, true},
	{FSRemove, "0.120", groupFilesystem, true},
	{FSCopy, "0.120", groupFilesystem, true},
	{FSOpen, "0.145", groupFilesystem, true},
	{FSReadBlock, "0.145", groupFilesystem, true},
	{FSWriteBlock, "0.163", groupFilesystem, true},
	{FSClose, "0.145", groupFilesystem, true},
	{FSWatchMissing, "0.169", groupFilesystem, true},
	{EnvironmentInfo, "0.140", groupInfo, true},
	{EnvironmentStatus, "0.145", groupStatus, true},
	{HTTPRequest, "0.128", groupHTTP, true},
	// Not advertised: they read the configuration of a codex that is installed in the sandbox.
	{EnvironmentConfig, "0.150", groupConfig, false},
	{CapabilityRoots, "0.145", groupCapabilities, false},
	{CapabilitiesV2, "0.163", groupCapabilities, false},
	// Not advertised: they belong to a proxy that the client starts in the sandbox.
	{NetworkRequest, "0.150", groupNetwork, false},
	{NetworkDecision, "0.150", groupNetwork, false},
}

var byName = func() map[string]*Method {
	out := make(map[string]*Method, len(methods))
	for i := range methods {
		out[methods[i].Name] = &methods[i]
	}
	return out
}()

// Lookup returns a method of a release; false for a name that no release had as a request.
func Lookup(name string) (Method, bool) {
	m, ok := byName[name]
	if !ok {
		return Method{}, false
	}
	return *m, true
}
