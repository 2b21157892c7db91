package shim

// MaxStarts is maxStarts.
const MaxStarts = maxStarts
