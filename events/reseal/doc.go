// Package reseal seals stored values again after their data key was replaced, and finds the
// values that still need a replaced key.
//
// # Values that are sealed again
// Where the last message of a subject counts, it is replaced by compare-and-append: secrets of
// tenants and webhooks, values of secret bundles, key pairs, signing keys, keys of users' tokens,
// environments of snapshots and headers for the persistence of conversations. Nothing but the sealed value changes. A pass can be interrupted and repeated anywhere.
//
// # Values that expire
// Records of sandboxes, commands, processes and builds are never changed. Their sealed values
// need the replaced key until the record is removed. [Values.Find] tells whether a stream still
// has such a value. It searches the bytes of all messages for the head that every value of a
// key begins with, so that it also finds values of kinds that this package does not know.
package reseal
