// Package systems contains the test that the product type-checks for other systems. It is a
// separate package because the race detector makes it ten times slower.
package systems
