// Package keystore stores the keys of package seal in the log: the data keys and the secrets of
// the cluster, all in one message, sealed with the master key.
//
// The first service that needs a key makes it. Every change is a compare-and-append of the
// whole message, so that a rotation happens at once or not at all.
package keystore
