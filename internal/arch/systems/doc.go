// Package systems holds the test that the product type-checks for systems other than this
// machine's. It is a package of its own because the race detector would make it ten times
// slower.
package systems
