// Package session serves the connections of hostd, of which the newest one with the highest
// epoch counts. It sends the sandbox's events and replies, and passes the sandbox what hostd
// sends.
//
// # Replacing a connection
// A session ends before the next one begins: when the sandbox lists its processes for a new
// connection, no frame of an older one is handled any more.
package session
