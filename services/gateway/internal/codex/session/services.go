package session

import (
	"context"
	"io"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// Transport carries messages of JSON: WebSocket text frames, or lines. Read and Write are each
// called by one goroutine at a time; Close may be called at any time, and more than once.
type Transport interface {
	// Read returns the next message, which is valid until the next call. The transport limits
	// its size and answers keepalives.
	Read() ([]byte, error)
	// Write sends messages and returns when the kernel has them. The transport limits how
	// long a client may read nothing. The caller owns the messages again when it returns.
	Write(messages [][]byte) error
	// Close ends the connection; Read and Write then return an error.
	Close()
}

// Opener opens the session of a connection.
type Opener interface {
	// Open attaches the client to a session: to a new one if resume is empty.
	//
	// Errors: NotFound if the session does not exist any more, which is final for the client;
	// Conflict if another connection has it; Unavailable if that cannot be decided yet.
	Open(ctx context.Context, resume string) (*Services, error)
}

// Services are what a session does in its sandbox. Filesystem and HTTP may be nil: their
// methods are then not offered.
type Services struct {
	Attachment  Attachment
	Processes   Processes
	Records     Records
	Controls    Controls
	Environment Environment
	Filesystem  Filesystem
	HTTP        HTTP
}

// Attachment is the connection's hold on its session.
type Attachment interface {
	// Session returns the session's id.
	Session() string
	// Resumed reports whether the session existed before.
	Resumed() bool
	// OnLost calls f in a goroutine once the connection must end: the session ended, or another
	// connection or gateway has it. stop prevents the call.
	OnLost(f func()) (stop func() bool)
	// Detach ends the attachment. What happens to the processes is decided by the policy of
	// the session.
	Detach()
}

// Process is a process of a session.
type Process struct {
	ID    process.ID
	Name  string // the client's id
	TTY   bool
	Stdin bool // a pipe
}

// Command is a command to start.
type Command struct {
	Argv        []string
	Arg0        *string // instead of Argv[0] in the arguments; nil: Argv[0]
	Cwd         string
	Env         map[string]string // the complete environment
	TTY         bool
	Stdin       bool
	Confinement *process.Confinement // nil: none
}

// Processes starts and finds the processes of a session.
type Processes interface {
	// Start starts a process and returns its record from the beginning. It returns Conflict if
	// the session has a process of this name, Invalid if the command can never run, and
	// Unimplemented if it cannot be confined as requested.
	Start(ctx context.Context, name string, cmd Command) (Process, Source, error)
	// Find returns a process, active or ended; NotFound if the session has none of this name.
	Find(ctx context.Context, name string) (Process, error)
	// Running returns the processes that have not ended.
	Running(ctx context.Context) ([]Process, error)
}

// Tail is the end of a record as stored.
type Tail struct {
	Last     process.Seq
	Exited   *process.Exit     // nil if the record has no Exited
	Finished *process.Finished // nil if the record has not ended
}

// Source reads a record, like [stream.Source].
type Source interface {
	Next(ctx context.Context, idle time.Duration) ([]process.Event, error)
	After() process.Seq
	Close()
}

// Records reads the records of processes.
type Records interface {
	// Tail returns the end of a record; the zero Tail if nothing is stored yet.
	Tail(ctx context.Context, id process.ID) (Tail, error)
	// Read returns a reader of the events after a position. Events that retention removed are
	// a process.Gap.
	Read(ctx context.Context, id process.ID, after process.Seq) (Source, error)
}

// Controls act on running processes. They return NotFound if the process has ended.
type Controls interface {
	// Write sends input and returns when the process has taken it. Input with a key that was
	// used before is dropped; an empty key has no such effect. It returns Precondition if
	// stdin is closed, and Deadline if the process does not read.
	Write(ctx context.Context, id process.ID, key string, data []byte) error
	// Signal sends a signal to the process group.
	Signal(ctx context.Context, id process.ID, signal int32) error
}

// Environment describes the sandbox.
type Environment interface {
	// Describe returns the information for clients and the variables that a process inherits.
	Describe(ctx context.Context) (protocol.Info, map[string]string, error)
}

// Filesystem opens the sandbox's files.
type Filesystem interface {
	// Files returns the files as a process with this confinement may use them (nil: without
	// one). It returns Unimplemented if the confinement cannot be enforced.
	Files(c *process.Confinement) (Files, error)
}

// FileInfo describes a file.
type FileInfo struct {
	Dir, Regular, Link bool // Dir and Regular are those of a link's target
	Size               int64
	Created, Modified  time.Time
}

// DirEntry is a file in a directory; of a link, Dir and Regular are those of its target.
type DirEntry struct {
	Name               string
	Dir, Regular, Link bool
}

// Files are the operations on files that every implementation has. Paths are absolute and
// clean. Errors: NotFound if the file is missing, Invalid or Precondition if it is of the
// wrong type.
type Files interface {
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Read returns a file, and Exhausted if it has more than limit bytes.
	Read(ctx context.Context, path string, limit int64) ([]byte, error)
	// Write replaces a file; its directory must exist.
	Write(ctx context.Context, path string, data []byte) error
	// MakeDir makes a directory, and with parents also the missing ones above; it then
	// accepts one that exists.
	MakeDir(ctx context.Context, path string, parents bool) error
	// List returns at most limit entries, sorted by name, and whether there are more.
	// Dangling links are left out.
	List(ctx context.Context, path string, limit int) (entries []DirEntry, more bool, err error)
	// Remove removes a file, or with recursive a tree. With force a missing file is removed.
	Remove(ctx context.Context, path string, recursive, force bool) error
	// Walk calls visit with the files and directories below a directory, breadth first, until
	// it returns false.
	Walk(ctx context.Context, path string, options *WalkOptions, visit func(Found) bool) error
}

// WalkOptions limit a walk.
type WalkOptions struct {
	Depth, Directories, Entries uint32
	Follow                      bool // enter directories that links lead to
	SkipHidden                  bool // do not enter directories whose names begin with a dot
}

// Found is an entry of a walk, a directory that could not be read, or the report that a limit
// was reached, which has no path.
type Found struct {
	Path      string
	Dir       bool
	Failed    string // why the directory could not be read
	Truncated bool
}

// RealPather resolves links. An implementation of [Files] may have it; so it is for the
// interfaces below.
type RealPather interface {
	RealPath(ctx context.Context, path string) (string, error)
}

// Copier copies files and trees.
type Copier interface {
	Copy(ctx context.Context, from, to string, recursive bool) error
}

// HandleOpener opens files for positioned reads.
type HandleOpener interface {
	OpenHandle(ctx context.Context, path string) (ReadHandle, error)
}

// HandleCreator opens files for positioned writes.
type HandleCreator interface {
	// CreateHandle truncates a file, or creates it.
	CreateHandle(ctx context.Context, path string) (WriteHandle, error)
}

// ReadHandle is a file that is open for reading. It is used by one goroutine at a time.
type ReadHandle interface {
	// ReadAt fills p. It returns io.EOF if the file ends within p.
	ReadAt(ctx context.Context, p []byte, offset int64) (int, error)
	Close() error
}

// WriteHandle is a file that is open for writing. It is used by one goroutine at a time.
type WriteHandle interface {
	WriteAt(ctx context.Context, p []byte, offset int64) error
	Close() error
}

// MissingWatcher waits for missing files.
type MissingWatcher interface {
	// WatchMissing watches until one of the missing paths appears, or the present one
	// disappears (empty: none). changed waits for that, or for the end of ctx; it is nil if
	// that is so already, and must be called otherwise.
	WatchMissing(ctx context.Context, missing []string, present string) (changed func(), err error)
}

// HTTPResponse is the response to a request, with its body still to be read.
type HTTPResponse struct {
	Status  int
	Headers []protocol.Header
	Body    io.ReadCloser
}

// HTTP sends HTTP requests from the sandbox, under its egress rules.
type HTTP interface {
	// Do sends a request and returns when the head of the response has arrived. ctx limits the
	// body, too.
	Do(ctx context.Context, p *protocol.HTTPParams) (*HTTPResponse, error)
}

// Budget is memory that all connections of a tenant share.
type Budget interface {
	// Reserve reserves n bytes, or returns an error.
	Reserve(n int) (release func(), err error)
}
