// Package wire is the language of hostd and the shim of a sandbox: frames over
// one byte stream, each 8 bytes of head (length, type, zeroes) and a payload.
//
// # The talk
// Hostd speaks first: Attach, with its epoch and what the shim needs to know of
// its sandbox. The shim answers Hello, with every process that it has not
// forgotten. From then on hostd sends commands, Resume, Ack, Forget and End; the
// shim sends events, Reply, Taken and, once after End, Ended.
//
// # Nothing lost, nothing twice
// The shim keeps an event until Ack; after a reconnect it says nothing of a
// process before Resume tells it after which seq to go on. A command carries
// its Rev; the shim drops what it has taken before.
//
// # Credit
// At most WindowProcess bytes of a process and WindowConn of all are sent and
// not acked, so that a slow hostd holds a bounded amount for a shim, and knows a
// shim that sends more as a hostile one. Every byte from a shim is hostile:
// parsing never trusts a length, and package link judges what was parsed.
//
// # Versions
// A shim outlives the hostd that started it, so that the two may be of different
// versions. Attach names the newest that hostd speaks, Hello the newest that both
// do, and that is spoken. An Attach begins with all that an older one had, and a
// shim does not read what a newer one has more. Shims of version 1 do not know
// this: they hang up on any other version, and hostd tries again with an older.
//
// # Memory
// A shim may be restored from memory in another sandbox than it began in. It finds
// that out by the name in Attach, makes its processes those of that sandbox, with
// records that begin anew, and says Moved of each before Hello.
//
// # Descriptors
// Where the stream can carry descriptors, Attach may bring one: the file for what
// waits to be stored (Limits.Disk).
package wire

import "github.com/millrace/millrace/events/mux"

// Version is the newest version of the talk.
//
// 2: Attach has Limits.Disk and what follows it; versions are agreed upon; there
// are streams and a proxy.
//
// 3: Attach has Now and Seed; a shim that was restored in another sandbox says
// Moved.
//
// 4: Network has CA.
//
// 5: Network has DNS.
//
// 6: there is Reboot.
//
// 7: there is Conclude.
//
// 8: there is Time.
const Version = 8

// Limits of the protocol, in bytes.
const (
	MaxFrame      = 2 << 20   // payload of any frame but a Hello
	MaxHello      = 8 << 20   // payload of a Hello: of some 150,000 processes that were not acked
	MaxData       = 128 << 10 // output in one frame
	WindowProcess = 1 << 20   // of one process, sent and not acked
	WindowConn    = 16 << 20  // of all processes, sent and not acked
	EventCost     = 64        // what an event counts besides its output
	MaxText       = 4 << 10   // a message in an event
)

// TokenLen is the length of a process's token (process.ID.Token).
const TokenLen = 26

const (
	headLen = 8
	magic   = 0x6d72_7368 // "mrsh"
)

// Type says what a frame's payload is.
type Type uint8

// From hostd. 6 was a question about a file, which nothing asks any more.
const (
	TypeAttach   Type = 1
	TypeStart    Type = 2
	TypeStdin    Type = 3
	TypeSignal   Type = 4
	TypeResize   Type = 5
	TypeResume   Type = 7
	TypeAck      Type = 8
	TypeForget   Type = 9
	TypeEnd      Type = 10
	TypeNetwork  Type = 11 // since version 2
	TypeReboot   Type = 12 // since version 6
	TypeConclude Type = 13 // since version 7
	TypeTime     Type = 14 // since version 8
)

// From the shim.
const (
	TypeHello  Type = 65
	TypeOutput Type = 66
	TypeEvent  Type = 67
	TypeReply  Type = 68
	TypeTaken  Type = 69
	TypeEnded  Type = 70
	TypeMoved  Type = 71 // since version 3
)

// TypeStreams and above are frames of package events/mux, from both ends: byte
// streams beside the processes. Hostd opens those to a port of the sandbox, which
// its target names in decimal, or with the target TargetFiles, each a question
// about files (package events/file); the shim opens those with the target
// TargetProxy, each a connection to the proxy that hostd is. They end with the
// connection. Since version 2.
const TypeStreams Type = mux.FirstType

// TargetProxy is what the shim's streams name, TargetFiles those of hostd's that
// are for no port.
const (
	TargetProxy = "proxy"
	TargetFiles = "files"
)

// Limits of the streams.
const (
	MaxStreams   = 128       // that one end may have open at the other
	WindowStream = 128 << 10 // bytes of a stream, sent and not read
)
