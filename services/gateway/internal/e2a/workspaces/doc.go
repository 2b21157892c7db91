// Package workspaces serves e2a's /v1/workspaces: files of users that outlive sandboxes.
//
// # Paths
// The path of a file is the rest of the request's path. Each of its segments is decoded once, and the
// result must be a valid [workspace.Path]: no spelling of .. or of a slash leaves the workspace.
//
// # Bytes
// Uploads and downloads pass in bounded memory. A response that breaks off is never complete for its
// client, which knows the length. What a client did not send completely is not stored.
package workspaces
