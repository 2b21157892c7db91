// Package logs serves a sandbox's logs in E2B's API.
//
// They are a view of the records of the sandbox's processes: every line of output, in the
// order of the records. Nothing else is stored for them.
package logs
