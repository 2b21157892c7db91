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
//   - OpCopy: one entry, that of the copy. A link is copied as a link, and a directory with
//     all below it, into an existing directory if there is one. A file that is replaced has
//     its old content or the new one at any time.
//   - OpResolve: one entry, that of the file which the path leads to, with its real path.
//     It has a link's target if the last name of the path is a link.
//   - OpWalk: frames with a [Found] each, breadth first. The root has none.
//   - OpAwait: an empty frame once the watch has begun; the end of the stream when one of the
//     Sources exists, or To does not. Without the frame that was so already.
//   - OpHandles: the client sends frames with a [HandleCall] each. A call to write is followed
//     by the raw data. For each call there is a frame with a [HandleResult] in return, which is
//     followed by the data that was read. The handles are closed at the end of the stream.
//   - OpUnpack: the client sends a tar and closes its side in order. Its
//     directories, files and links are created below the path, which is created if
//     missing, and owned by the user. The response is the end of the stream. After
//     a failure, what was created stays.
//
// An entry is a filesystem.EntryInfo (schema/filesystem) in protobuf encoding. A response
// is complete when the stream ends in order. After a failure the stream is aborted with the
// error as its reason.
package file
