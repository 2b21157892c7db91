package shim

import "github.com/millrace/millrace/services/hostd/internal/shim/internal/procs"

// MaxStarts exports procs.MaxStarts to the tests of package shim_test.
const MaxStarts = procs.MaxStarts
