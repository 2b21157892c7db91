// Package admin has the commands for operators of an installation: hosts and host, key,
// events and doctor.
package admin
