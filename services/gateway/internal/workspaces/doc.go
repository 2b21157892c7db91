// Package workspaces keeps the files of workspaces in the log. Any other store would have to pass the tests
// of package workspacestest.
//
// # Links
// A link is a URL that reads or writes one file without another credential, for [LinkFor]. Every gateway
// serves it. [Links] signs it: the link names the file, the method and the end of its validity.
package workspaces
