// Package workspaces keeps the files of workspaces: in the log, or in a bucket of any S3 (its package
// s3). Both pass the tests of package workspacestest.
//
// # Links
// A link is a URL that reads or writes one file without another credential, for [LinkFor]. S3 signs its own. Those
// of the log are served by every gateway, and [Links] signs them: the link names the file, the method
// and the end of its validity.
package workspaces
