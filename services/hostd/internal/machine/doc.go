// Package machine reports what a host's machine has and how busy it is. All that is unknown on a
// system is zero.
package machine
