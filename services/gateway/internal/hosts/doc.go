// Package hosts implements the operations on hosts: it lists and drains them, and reports
// what would be lost with a host.
package hosts
