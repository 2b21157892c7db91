// Package admin has the commands for operators of an installation: hosts and host, key,
// keyring, events and doctor.
package admin
