// Package wire is the protocol between hostd and the shim of a sandbox: frames over one
// byte stream, each an 8-byte head (length, type, zeroes) and a payload of tagged fields
// (package events/field). Unknown fields are skipped, and a missing field is zero.
//
// # Handshake
// Hostd sends Attach, with its epoch and what the shim needs for its sandbox. The shim
// answers Hello, with every process that it has not forgotten. From then on hostd sends
// commands, Resume, Ack, Forget and End; the shim sends events, Reply, Taken and, once
// after End, Ended.
//
// # Nothing lost, nothing twice
// The shim keeps an event until Ack. After a reconnect it sends nothing of a process until
// Resume names the seq after which to continue. A command carries its Rev; the shim ignores a
// command that it has taken before.
//
// # Credit
// At most WindowProcess bytes of a process and WindowConn of all are sent but not
// acknowledged. A slow hostd therefore holds a bounded amount for a shim, and a shim that
// sends more is hostile. Every byte from a shim is untrusted: parsing never relies on a
// length, and package link validates the parsed frames.
//
// # Version
// A shim outlives the hostd that started it, so that the two may be of different builds.
// Attach and Hello begin with a magic number and the version of the protocol, in eight bytes
// before their fields. Each side refuses another version without decoding the fields: the
// shim answers with a Hello of its own version and hangs up, and hostd ends the sandbox.
//
// # Memory
// A shim may be restored from memory in another sandbox than it started in. It detects that
// by the name in Attach, turns its processes into processes of that sandbox, with records
// that begin anew, and sends Moved for each before Hello.
//
// # Descriptors
// Where the stream can carry descriptors, Attach may bring one: the spool file for events
// that wait to be stored (Limits.Disk).
package wire

import "github.com/millrace/millrace/events/mux"

// Version is the version of the protocol. It changes with any change of a frame.
const Version = 1

// Limits of the protocol, in bytes.
const (
	MaxFrame      = 2 << 20   // payload of any frame but a Hello
	MaxHello      = 8 << 20   // payload of a Hello: some 150,000 unacknowledged processes
	MaxData       = 128 << 10 // output in one frame
	WindowProcess = 1 << 20   // of one process, sent and not acknowledged
	WindowConn    = 16 << 20  // of all processes, sent and not acknowledged
	EventCost     = 64        // cost of an event besides its output
	MaxText       = 4 << 10   // a name, or a message in an event
	MaxEvent      = 64 << 10  // an event that is not output, encoded
	MaxCA         = 64 << 10  // a certificate
)

// TokenLen is the length of a process's token (process.ID.Token).
const TokenLen = 26

const (
	headLen = 8
	magic   = 0x6d72_7368 // "mrsh"
)

// Type is the type of a frame.
type Type uint8

// From hostd.
const (
	TypeAttach   Type = 1
	TypeStart    Type = 2
	TypeStdin    Type = 3
	TypeSignal   Type = 4
	TypeResize   Type = 5
	TypeResume   Type = 6
	TypeAck      Type = 7
	TypeForget   Type = 8
	TypeEnd      Type = 9
	TypeNetwork  Type = 10
	TypeReboot   Type = 11
	TypeConclude Type = 12
	TypeTime     Type = 13
)

// From the shim.
const (
	TypeHello  Type = 65
	TypeOutput Type = 66
	TypeEvent  Type = 67
	TypeReply  Type = 68
	TypeTaken  Type = 69
	TypeEnded  Type = 70
	TypeMoved  Type = 71
)

// TypeStreams and above are frames of package events/mux, from both ends: byte streams
// beside the processes. Hostd opens them to a port of the sandbox, which is the target in
// decimal, or with the target TargetFiles for a file request (package events/file). The
// shim opens them with the target TargetProxy for a connection through hostd's egress
// proxy. They end with the connection.
const TypeStreams Type = mux.FirstType

// TargetProxy is the target of the shim's streams, TargetFiles of those of hostd's that are
// not for a port.
const (
	TargetProxy = "proxy"
	TargetFiles = "files"
)

// Limits of the streams.
const (
	MaxStreams   = 128       // open at one end by the other
	WindowStream = 128 << 10 // bytes of a stream, sent and not read
)
