// Package stdio makes the standard files of a program that runs in a sandbox: pipes and
// terminals.
//
// # Owners
// A shell opens /dev/stderr, /dev/stdin or /proc/self/fd/2 anew, by its path, and the kernel
// checks the owner and the mode of the open file as of any file. A new pipe belongs to
// the user that made it, here the shim's, with mode 0600. Each function therefore takes the
// user that the program runs as, and gives the file to that user.
package stdio
