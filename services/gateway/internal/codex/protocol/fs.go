package protocol

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// FileParams are the parameters of the fs methods that take a path. A nil field is absent.
type FileParams struct {
	Path      Path         `json:"path"`
	Data      *string      `json:"dataBase64"` // of fs/writeFile
	Recursive *bool        `json:"recursive"`
	Force     *bool        `json:"force"`
	MaxBytes  *uint64      `json:"maxBytes"`
	Options   *WalkOptions `json:"options"` // of fs/walk
	Sandbox   *Sandbox     `json:"sandbox"`
}

// WalkOptions bound a walk.
type WalkOptions struct {
	MaxDepth         uint64 `json:"maxDepth"`
	MaxDirectories   uint64 `json:"maxDirectories"`
	MaxEntries       uint64 `json:"maxEntries"`
	FollowLinks      bool   `json:"followDirectorySymlinks"`
	PruneHiddenNames bool   `json:"pruneHiddenDirectories"`
}

// UnmarshalJSON decodes options and requires the limits: one that is missing must not count as
// zero.
func (o *WalkOptions) UnmarshalJSON(raw []byte) error {
	type plain WalkOptions
	return decode(raw, (*plain)(o), "maxDepth", "maxDirectories", "maxEntries")
}

// ParseFile decodes and checks the parameters of an fs method with a path.
func ParseFile(method string, raw []byte) (FileParams, error) {
	var p FileParams
	required := []string{"path"}
	switch method {
	case FSWriteFile:
		required = append(required, "dataBase64")
	case FSWalk:
		required = append(required, "options")
	}
	return p, decode(raw, &p, required...)
}

// Content decodes the data of fs/writeFile. Its error is an invalid request, as in released
// servers.
func (p *FileParams) Content() ([]byte, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(*p.Data)
	if err != nil || strings.ContainsAny(*p.Data, "\r\n") {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "dataBase64 is not valid base64")
	}
	return data, nil
}

// CopyParams are the parameters of fs/copy.
type CopyParams struct {
	From      Path     `json:"sourcePath"`
	To        Path     `json:"destinationPath"`
	Recursive bool     `json:"recursive"`
	Sandbox   *Sandbox `json:"sandbox"`
}

// ParseCopy decodes and checks parameters.
func ParseCopy(raw []byte) (CopyParams, error) {
	var p CopyParams
	return p, decode(raw, &p, "sourcePath", "destinationPath", "recursive")
}

// HandleParams are the parameters of the methods with a handle.
type HandleParams struct {
	HandleID string   `json:"handleId"`
	Path     Path     `json:"path"` // of fs/open
	Mode     *string  `json:"mode"` // of fs/open: read or replace
	Offset   uint64   `json:"offset"`
	Len      uint64   `json:"len"`
	Chunk    Bytes    `json:"chunk"`
	Sandbox  *Sandbox `json:"sandbox"`
}

// maxOffset is the greatest offset in a file.
const maxOffset = 1<<63 - 1

// ParseHandle decodes and checks the parameters of a method with a handle.
func ParseHandle(method string, raw []byte) (HandleParams, error) {
	var p HandleParams
	required := []string{"handleId"}
	switch method {
	case FSOpen:
		required = append(required, "path")
	case FSReadBlock:
		required = append(required, "offset", "len")
	case FSWriteBlock:
		required = append(required, "offset", "chunk")
	}
	if err := decode(raw, &p, required...); err != nil {
		return p, err
	}
	switch {
	case len(p.HandleID) > MaxHandleID:
		return p, bad("handleId is too long")
	case p.Mode != nil && *p.Mode != "read" && *p.Mode != "replace":
		return p, bad("mode must be read or replace")
	case method == FSReadBlock && (p.Len < 1 || p.Len > MaxBlock):
		return p, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "len must be 1 to %d", MaxBlock)
	case len(p.Chunk) > MaxBlock:
		return p, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "chunk of %d bytes, the limit is %d", len(p.Chunk), MaxBlock)
	case p.Offset > maxOffset-MaxBlock:
		return p, bad("offset is too large")
	}
	return p, nil
}

// Write reports whether the handle is for writing.
func (p *HandleParams) Write() bool { return p.Mode != nil && *p.Mode == "replace" }

// WatchParams are the parameters of fs/watchMissing.
type WatchParams struct {
	WatchID json.Number `json:"watchId"`
	Missing []Path      `json:"missing"`
	Present *Path       `json:"present"`
}

// maxWatched is the maximum number of paths of a watch.
const maxWatched = 1024

// ParseWatch decodes and checks parameters.
func ParseWatch(raw []byte) (WatchParams, error) {
	var p WatchParams
	if err := decode(raw, &p, "watchId", "missing"); err != nil {
		return p, err
	}
	if _, err := p.WatchID.Int64(); err != nil {
		return p, bad("watchId must be an integer")
	}
	if len(p.Missing) > maxWatched {
		return p, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%d paths, the limit is %d", len(p.Missing), maxWatched)
	}
	return p, nil
}

// The results of the fs methods.
type (
	// FileData is the result of fs/readFile.
	FileData struct {
		Data []byte `json:"dataBase64"`
	}
	// Metadata is the result of fs/getMetadata.
	Metadata struct {
		IsDirectory  bool  `json:"isDirectory"`
		IsFile       bool  `json:"isFile"`
		IsSymlink    bool  `json:"isSymlink"`
		Size         int64 `json:"size"`
		CreatedAtMS  int64 `json:"createdAtMs"`
		ModifiedAtMS int64 `json:"modifiedAtMs"`
	}
	// RealPath is the result of fs/canonicalize.
	RealPath struct {
		Path string `json:"path"`
	}
	// DirEntry is a file in a directory.
	DirEntry struct {
		FileName    string `json:"fileName"`
		IsDirectory bool   `json:"isDirectory"`
		IsFile      bool   `json:"isFile"`
	}
	// Directory is the result of fs/readDirectory.
	Directory struct {
		Entries []DirEntry `json:"entries"`
	}
	// WalkEntry is a file that a walk found.
	WalkEntry struct {
		Path string `json:"path"`
		Kind string `json:"kind"` // file or directory
	}
	// WalkError is a directory that a walk could not read.
	WalkError struct {
		Path    string `json:"path"`
		Message string `json:"message"`
	}
	// Walked is the result of fs/walk.
	Walked struct {
		Entries   []WalkEntry `json:"entries"`
		Errors    []WalkError `json:"errors"`
		Truncated bool        `json:"truncated"`
	}
	// Handle is the result of fs/open.
	Handle struct {
		HandleID string `json:"handleId"`
	}
	// Block is the result of fs/readBlock.
	Block struct {
		Chunk []byte `json:"chunk"`
		EOF   bool   `json:"eof"`
	}
	// Watching is the result of fs/watchMissing.
	Watching struct {
		Watching bool `json:"watching"`
	}
	// Empty is the result of methods that return nothing.
	Empty struct{}
)
