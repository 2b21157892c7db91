// Package spool opens the files in which shims keep output that is not stored yet.
package spool
