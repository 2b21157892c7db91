// Package codec encodes and decodes what package events stores: the events of sandboxes and
// builds, summaries of processes, leases of hosts, and compressed batches of output.
//
// Everything but a process's output uses the generated types, because none of it is on a hot
// path.
package codec
