// Package builds serves E2B's builds of templates: their requests, logs, and the upload of the
// files that they copy.
package builds
