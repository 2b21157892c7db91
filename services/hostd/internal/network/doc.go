// Package network gives the sandboxes of a host their network, as far as their records allow: the
// proxy (package egress) and, where it is configured, an interface of their own (package veth). It
// also counts their traffic.
//
// # Concurrency
// A [Network] and its [Sandbox] values are safe for concurrent use, after OpenProxy and UseView
// have returned. Run is one goroutine.
package network
