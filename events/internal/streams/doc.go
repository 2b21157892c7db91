// Package streams names the streams of the log, has their settings, and creates them.
//
// All streams use file storage except those that [InMemory] returns. They have no deletes,
// no consumers and no compression by the server. Services that start at the same time may
// create the same streams.
package streams
