// Package fresh gives the kernel of a machine that was restored from memory what
// others that were restored from the same do not have, and one that stood still the time.
package fresh
