// Package regular reads files of a sandbox, which its processes may replace at any time by
// something else than a regular file.
package regular
