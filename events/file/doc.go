// Package file is the protocol for access to a sandbox's files over one byte stream
// (package mux) between a client and the sandbox.
//
// # Protocol
// The client sends a [Request] as a frame: four bytes of length, little endian, then as
// many bytes. What follows depends on its Op:
//
//   - OpStat, OpMakeDir, OpMove, OpChange: the response is one frame, an entry.
//   - OpCompose: likewise; the sources are removed.
//   - OpList: frames with an entry each, in the order of a walk.
//   - OpRemove: no response.
//   - OpRead: one frame with the file's entry. The client sends a [Range] as a
//     frame, and the range's raw bytes follow.
//   - OpWrite: the client sends the raw content and closes its side in order.
//     Then the file is moved into place, and its entry follows as a frame. If the
//     stream is aborted before, nothing changes.
//   - OpUnpack: the client sends a tar and closes its side in order. Its
//     directories, files and links are created below the path, which is created if
//     missing, and owned by the user. The response is the end of the stream. After
//     a failure, what was created stays.
//
// An entry is a filesystem.EntryInfo (schema/filesystem) in protobuf encoding. A response
// is complete when the stream ends in order. After a failure the stream is aborted with the
// error as its reason.
package file
