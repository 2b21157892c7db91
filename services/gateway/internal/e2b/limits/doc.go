// Package limits is the resource limits of sandboxes: their ranges, their defaults, and the
// limits that a request to create a sandbox contains.
package limits
