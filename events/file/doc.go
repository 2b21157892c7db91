// Package file is the language in which a sandbox is asked about its files: what
// goes over one byte stream (package mux) between whoever asks and the sandbox.
//
// # The talk
// Who asks sends a Request as a frame: four bytes of length, little endian, and
// as many bytes. What follows depends on its Op:
//
//   - OpStat, OpMakeDir, OpMove, OpChange: the answer is one frame, an entry.
//   - OpCompose: likewise; the sources are gone then.
//   - OpList: frames with an entry each, in the order of a walk.
//   - OpRemove: nothing.
//   - OpRead: one frame with the file's entry; then who asks sends a Range as a
//     frame, and its bytes follow as they are.
//   - OpWrite: who asks sends the content as it is; when it closes its side in
//     order, the file is put in its place, and its entry follows as a frame. A
//     stream that is cut before leaves everything as it was.
//   - OpUnpack: who asks sends a tar and closes his side in order; its
//     directories, files and links are made below the path, which is made if it
//     lacks, and given to the user. There is no answer but the end. What was made
//     before it fails stays.
//
// An entry is a filesystem.EntryInfo (schema/filesystem) in protobuf's encoding.
// An answer is complete when the stream ends in order; every failure is the
// reason with which it is cut.
package file
