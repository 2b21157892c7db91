// Package files serves GET and POST /files as E2B's envd does (WIRE-E2B 3.4):
// whole files, streamed both ways between the client and the sandbox. A gateway
// holds no more than a few buffers of a file, whatever its size.
//
// An upload is put in its place when all of it has come; one that breaks off
// leaves the file that was there. Each part of a multipart upload is a file of
// its own: an answer with an error names those that are in place already.
//
// What an HTTP client needs for parts of files (Range, If-Range,
// If-Modified-Since) is served; several ranges at once are answered with the
// whole file. A download is compressed if the client wants that more than the
// bytes as they are: who names gzip among others gets identity, which is faster.
package files
