package client

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

// messageError is an error with a text for users.
type messageError struct {
	message string
	err     error
}

// Error returns the text.
func (e *messageError) Error() string { return e.message }

// Unwrap returns the error as the standard library made it.
func (e *messageError) Unwrap() error { return e.err }

// WithMessage adds a text for users to errors of connections and decoders. It returns any
// other error unchanged.
func WithMessage(err error) error {
	if _, done := errors.AsType[*messageError](err); done || err == nil {
		return err
	}
	if words := MessageOf(err); words != "" {
		return &messageError{words, err}
	}
	return err
}

// MessageOf returns a text for users if err is an error of a connection or decoder.
func MessageOf(err error) string {
	timeout, isNet := errors.AsType[net.Error](err)
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, stranger := errors.AsType[x509.UnknownAuthorityError](err)
	_, mismatch := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, errSilent):
		return ""
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return "the gateway did not answer in time"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the gateway closed the connection"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the gateway does not serve TLS on this port: use http:// in its URL"
	case stranger:
		return "the gateway's certificate is signed by an unknown authority: set SSL_CERT_FILE to a PEM file with the authority"
	case syntax, mismatch:
		return "the gateway sent invalid JSON"
	}
	return ""
}
