// Package seal encrypts what the log stores but must not show: tenants' secrets, webhooks'
// secrets, registry credentials, signing keys, environments, and values of networks. It does no I/O.
//
// # Keys
// A [Master] key lies outside of the store. It only encrypts the keys in a [Set], which the
// store holds: data keys, which encrypt values, and the cluster's own secrets. To change the
// master key, those few keys are encrypted again; the values stay as they are.
//
// # Values
// A [Ring] seals a value for a [Place]: its tenant, its record and its field. The value can be
// opened for that place only, so that a sealed value that was copied to another place is
// rejected. The cipher is XChaCha20-Poly1305, whose random nonces of 24 bytes do not repeat
// however many values a key seals.
//
// # Errors
// [ErrMissing] reports that no master key is known, [ErrWrong] that another one sealed the
// store. Any other failure to open a key or value means damaged data.
package seal
