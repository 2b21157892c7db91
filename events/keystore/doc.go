// Package keystore stores the keys of package seal in the log: the data keys and the secrets of
// the cluster, all in one message, sealed with the master key.
//
// The first service that needs a key makes it. Every change is a compare-and-append of the
// whole message, so that a rotation happens at once or not at all, and two of them at once are
// one. Versions before the last are removed: a replaced master key opens no stored message.
//
// # Rotation
// [Keys.RotateMaster] seals the keys with another master key. [Keys.RotateData] makes another
// data key the current one; values that older ones sealed are found and sealed again by package
// reseal, after which [Keys.RemoveData] removes those. All three can be repeated after a failure.
//
// Services that announce themselves report which keys they can open. A rotation that a running
// service could not follow is refused.
package keystore
