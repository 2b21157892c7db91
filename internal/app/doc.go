// Package app is the program: it turns command lines into running services.
//
// # Roles
// The first argument selects the role. nats, gateway, scheduler, reaper and hostd each
// run one service, connected to a NATS server (roles.go, host.go). `up` runs all of them
// in one process with an embedded server and one shared View (up.go, banner.go). Only
// this package distinguishes the two. The other commands are a client: package cli.
//
// # Settings
// Settings come from flags, then MILLRACE_* variables, then defaults (settings.go). All
// are checked before anything starts (check.go).
//
// # Start and stop
// A data directory belongs to one process at a time (data.go). The first SIGTERM or
// SIGINT ends the context of a role, and the second one the process (signals.go). A role
// that does not return within its bound is abandoned (stop.go).
package app
