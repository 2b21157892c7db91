// Package counts has tests that guard what one operation costs in counts that do not depend on
// the machine: messages published, messages stored, allocations. They run all services in the
// test's process, as `millrace up` does, with the driver direct.
//
// Each count has a limit in the table of its test, and a line of docs/performance.md. A change
// that lowers a count lowers its limit, too.
package counts
