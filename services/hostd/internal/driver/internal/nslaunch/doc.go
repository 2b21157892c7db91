//go:build linux

// Package nslaunch is the outer half of package nsinit: it starts a process in
// namespaces of its own, as hostd's child, and tells it what to become. The drivers
// whose places, or machines, are such processes share it.
package nslaunch
