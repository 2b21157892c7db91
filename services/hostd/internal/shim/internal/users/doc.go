// Package users knows the users of a sandbox: it finds the account of a process, its
// credential and its working directory.
package users
