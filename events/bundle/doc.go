// Package bundle is the vocabulary of secret bundles: named sets of secrets that a tenant stores
// and has injected into conversations. It does no I/O.
//
// # State
// The bundles of a tenant are one aggregate, because a tenant may have [MaxBundles]: of concurrent
// changes one is first, and the others are decided again. [State.Apply] is the one table of what
// can happen. The state has names, names of keys, generations and times, and never a value.
//
// # Generations
// The values of a bundle belong to a [Generation], which does not change. An event of the bundle
// makes another generation the valid one, so that readers see all values of one generation or all of
// another.
//
// # Errors
// Errors name bundles and valid names of keys. They never contain a value, and neither a name of
// a key that is not valid: it may be a value that was written in the wrong place.
package bundle
