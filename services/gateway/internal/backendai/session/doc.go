// Package session maps Backend.AI's sessions to sandboxes: their names and UUIDs, the bodies of
// requests that create them in every version of the API, and their descriptions.
//
// A session is a sandbox whose metadata contains the session's name. Of the sandboxes of a tenant
// with one name, at most one is alive: its id is derived from the name and from the last sandbox
// that had it, so that concurrent requests for one name at any gateways compete for one record.
package session
