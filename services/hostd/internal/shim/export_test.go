package shim

// MaxStarts exports maxStarts to the tests of package shim_test.
const MaxStarts = maxStarts
