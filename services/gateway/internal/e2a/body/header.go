package body

import "strings"

const maxHeader = 8 << 10 // bytes of the value of a header

// CheckHeader returns Invalid for a text that cannot be the value of a header as it is.
func CheckHeader(name, value string) error {
	switch {
	case len(value) > maxHeader:
		return Invalid(name + " is longer than 8192 bytes")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return Invalid(name + " has a control character")
	case strings.Trim(value, " \t") != value:
		return Invalid(name + " begins or ends with white space")
	}
	return nil
}
