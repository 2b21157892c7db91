// Package fileuri translates the two forms in which codex writes paths: an absolute path (up
// to release 0.140) and a file URI (from 0.145 on). An answer uses the form of its request.
//
// A translated path is absolute and clean. It is a path inside of the sandbox: ".." cannot
// leave the root, and the sandbox resolves links below its own root, not here.
package fileuri

import (
	"path"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

// MaxPath is the maximum length of a path in bytes.
const MaxPath = 4096

// Form is the form in which a client writes paths.
type Form uint8

// The forms of paths.
const (
	URI   Form = iota // file:///tmp/a%20b
	Plain             // /tmp/a b
)

const scheme = "file:"

// Parse translates a path of a client. Its error is a *jsonrpc.Error with
// [jsonrpc.CodeInvalidParams].
func Parse(s string) (p string, form Form, err error) {
	switch {
	case strings.HasPrefix(s, "/"):
		p, form = s, Plain
	case len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme):
		if p, err = parseURI(s[len(scheme):]); err != nil {
			return "", URI, err
		}
	case strings.Contains(s, "://"):
		return "", URI, invalid("only file URIs are supported")
	default:
		return "", URI, invalid("invalid URI: relative URL without a base")
	}
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", form, invalid("path has a NUL byte")
	case len(p) > MaxPath:
		return "", form, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "path of %d bytes, the limit is %d", len(p), MaxPath)
	}
	return path.Clean(p), form, nil
}

// parseURI translates what follows the scheme.
func parseURI(rest string) (string, error) {
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		slash := strings.IndexByte(after, '/')
		if slash < 0 {
			return "", invalid("the file URI has no absolute path")
		}
		if host := after[:slash]; host != "" && !strings.EqualFold(host, "localhost") {
			return "", invalid("the file URI names a host")
		}
		rest = after[slash:]
	}
	if !strings.HasPrefix(rest, "/") {
		return "", invalid("the file URI has no absolute path")
	}
	if strings.ContainsAny(rest, "?#") {
		return "", invalid("the file URI has a query or a fragment")
	}
	return unescape(rest)
}

// unescape decodes percent encodings. An encoded slash is rejected: it would change which
// directory a name is in.
func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) || unhex(s[i+1]) > 15 || unhex(s[i+2]) > 15 {
				return "", invalid("the file URI has an invalid percent encoding")
			}
			if c = unhex(s[i+1])<<4 | unhex(s[i+2]); c == '/' {
				return "", invalid("the file URI has an encoded slash")
			}
			i += 2
		}
		b = append(b, c)
	}
	return string(b), nil
}

// unhex returns the value of a hexadecimal digit; 16 for any other byte.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

func invalid(msg string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: msg}
}

const hexDigits = "0123456789ABCDEF"

// Format writes an absolute path in a form.
func Format(p string, form Form) string {
	if form == Plain {
		return p
	}
	b := make([]byte, 0, len("file://")+len(p)+16)
	b = append(b, "file://"...)
	for i := range len(p) {
		if c := p[i]; escaped(c) {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// escaped reports whether a byte is written with a percent encoding in the path of a URI.
func escaped(c byte) bool {
	return c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%<>?`{}\\^", c) >= 0
}

// Within reports whether a clean path is a directory or lies below it. It compares names and
// does not resolve links.
func Within(dir, p string) bool {
	return p == dir || dir == "/" && strings.HasPrefix(p, "/") || strings.HasPrefix(p, dir+"/")
}
