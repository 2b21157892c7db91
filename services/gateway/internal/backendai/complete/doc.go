// Package complete makes completions of code: for a language it returns code that prints them when
// a kernel of the language runs it, because only the kernel knows what earlier code defined. It does
// no I/O.
package complete
