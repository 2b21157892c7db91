package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"testing"
)

// Users see sentences, not the standard library's errors for broken connections.
func TestErrorsAreSentences(t *testing.T) {
	var v struct{ N int }
	for want, err := range map[string]error{
		"the gateway closed the connection":  fmt.Errorf("read: %w", io.ErrUnexpectedEOF),
		"the gateway did not answer in time": context.DeadlineExceeded,
		"interrupted":                        context.Canceled,
		"the gateway sent invalid JSON":      json.Unmarshal([]byte(`{"n":"x"}`), &v),
		errSilent.Error():                    errSilent,
		"the gateway's certificate is signed by an unknown authority: set SSL_CERT_FILE to a PEM file with the authority": &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	} {
		if got := WithMessage(err).Error(); got != want {
			t.Errorf("withMessage(%v) = %q; want %q", err, got, want)
		}
	}
}
