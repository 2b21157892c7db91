// Package files is the transfer of files in Backend.AI's API: uploads as forms, downloads as tars in
// a multipart body, and listings. What it does with the files of a session is in [Store].
//
// Paths are relative to the home of the session's user. Absolute paths and paths with ".." are Invalid.
package files
