// Package e2e_test tests the protocols and the handling of faults with the real binary,
// foreign clients and raw sockets.
//
// A test whose comment has a rule (such as C-001) or a case (such as A01) covers all of it
// on the wire; tests with foreign clients are in the file of their client. Tests that
// measure time or count the whole gateway's work run alone; tests that mostly wait run in
// parallel, after them.
package e2e_test
