// Package backend gives sessions of codex clients what they need of the gateway: it starts and
// finds processes, reads their records and the sandbox's files.
//
// # Names
// A process of a session carries its session and the client's id in its tag, so that every
// gateway finds it in the catalog. No name of a client becomes a part of a subject. A name can
// be used again [retained] after its process has ended, as in released servers; the record of
// the older process is kept as long as any other.
package backend
