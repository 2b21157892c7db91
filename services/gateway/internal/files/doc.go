// Package files serves GET and POST /files as E2B's envd does: whole files, streamed
// between the client and the sandbox in both directions. A gateway holds no more than a
// few buffers of a file of any size.
//
// An upload takes effect once all of it has arrived; one that is cut off leaves the
// existing file. Each part of a multipart upload is a file of its own: an error response
// names the files that are complete.
//
// Requests for parts of files (Range, If-Range, If-Modified-Since) are supported; several
// ranges at once return the whole file. A download is compressed only if the
// client prefers gzip to identity, which is faster: gzip among other codings gets identity.
package files
