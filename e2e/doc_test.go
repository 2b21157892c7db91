// Package e2e_test tries the rules of the wire and the ways to die against the
// real binary, with clients that were written by others and with sockets.
//
// A test named after a rule (TestEveryRouteAcceptsOnlyPOST...) or a case (TestTortureA01...) is the
// whole of it at the wire; what needs other programs beside it is in the file of
// its client. Tests that measure time or count what the whole gateway did run
// alone; those that mostly wait run beside each other, after them.
package e2e_test
