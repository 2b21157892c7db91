package protocol

import (
	"encoding/base64"
	"strconv"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// The frames below are written for every piece of output, so that they are appended by hand.

// AppendOutput appends a process/output. id is the JSON of the process's id.
func AppendOutput(dst, id []byte, seq uint64, stream string, chunk []byte) []byte {
	dst = append(dst, `{"method":"process/output","params":{"processId":`...)
	dst = append(dst, id...)
	dst = append(dst, ',')
	dst = appendChunk(dst, seq, stream, chunk)
	return append(dst, `}}`...)
}

// appendChunk appends the members that output and a chunk of process/read have in common.
func appendChunk(dst []byte, seq uint64, stream string, chunk []byte) []byte {
	dst = append(dst, `"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"stream":"`...)
	dst = append(dst, stream...)
	dst = append(dst, `","chunk":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, chunk)
	return append(dst, '"')
}

// AppendExited appends a process/exited.
func AppendExited(dst, id []byte, seq uint64, code int32) []byte {
	dst = append(dst, `{"method":"process/exited","params":{"processId":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"exitCode":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	return append(dst, `,"sandboxDenied":false}}`...)
}

// AppendClosed appends a process/closed.
func AppendClosed(dst, id []byte, seq uint64) []byte {
	dst = append(dst, `{"method":"process/closed","params":{"processId":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, `}}`...)
}

// ReadAnswer appends the answer of process/read: [NewReadAnswer], then chunks, then
// [ReadAnswer.Close].
type ReadAnswer struct {
	buf []byte
	any bool // there is a chunk
}

// NewReadAnswer begins an answer to the request with an id.
func NewReadAnswer(dst, id []byte) *ReadAnswer {
	dst = append(jsonrpc.OpenResult(dst, id), `{"chunks":[`...)
	return &ReadAnswer{buf: dst}
}

// Chunk appends a chunk.
func (a *ReadAnswer) Chunk(seq uint64, stream string, chunk []byte) {
	if a.any {
		a.buf = append(a.buf, ',')
	}
	a.any = true
	a.buf = appendChunk(append(a.buf, '{'), seq, stream, chunk)
	a.buf = append(a.buf, '}')
}

// Len returns the length of the answer so far.
func (a *ReadAnswer) Len() int { return len(a.buf) }

// ReadState is the part of the answer of process/read behind the chunks.
type ReadState struct {
	NextSeq  uint64
	Exited   bool
	ExitCode int32
	Closed   bool
	Failure  string // empty: none
}

// Close appends the end and returns the answer.
func (a *ReadAnswer) Close(s ReadState) []byte {
	b := a.buf
	b = append(b, `],"nextSeq":`...)
	b = strconv.AppendUint(b, s.NextSeq, 10)
	b = append(b, `,"exited":`...)
	b = strconv.AppendBool(b, s.Exited)
	b = append(b, `,"exitCode":`...)
	if s.Exited {
		b = strconv.AppendInt(b, int64(s.ExitCode), 10)
	} else {
		b = append(b, `null`...)
	}
	b = append(b, `,"closed":`...)
	b = strconv.AppendBool(b, s.Closed)
	b = append(b, `,"failure":`...)
	if s.Failure != "" {
		b = jsonrpc.AppendString(b, s.Failure)
	} else {
		b = append(b, `null`...)
	}
	return append(b, `,"sandboxDenied":false}}`...)
}

// ChunkSize returns an upper bound of what a chunk adds to a frame, apart from the process's id.
func ChunkSize(n int) int { return chunkFrame + base64.StdEncoding.EncodedLen(n) }

const chunkFrame = 128

// Started is the result of process/start.
type Started struct {
	ProcessID   string `json:"processId"`
	SandboxType string `json:"sandboxType"` // none, or linuxSeccomp if a requested policy is enforced
}

// Written is the result of process/write.
type Written struct {
	Status   string `json:"status"`
	Accepted bool   `json:"accepted"`
}

// The statuses of a write.
const (
	WriteAccepted = "accepted"
	WriteUnknown  = "unknownProcess"
	WriteClosed   = "stdinClosed"
)

// Terminated is the result of process/terminate.
type Terminated struct {
	Running bool `json:"running"`
}
