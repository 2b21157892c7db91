//go:build linux

// Package nslaunch is the host's side of package nsinit: it starts a process in
// namespaces of its own, as hostd's child, and sends it its spec. It is shared by the
// drivers whose instances, or virtual machines, are such processes.
package nslaunch
