package procs

import "os"

// maxString returns the maximum length in bytes of one argument or variable, 0 for no
// limit: the kernel's MAX_ARG_STRLEN is 32 pages, with the final NUL.
func maxString() int { return 32*os.Getpagesize() - 1 }
