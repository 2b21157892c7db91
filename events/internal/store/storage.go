package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// minStreamBytes is the size below which a server counts as full, not as small.
const minStreamBytes = 8 << 20

// shrinkToFit calls do with most bytes, and with an eighth less each time until the servers can
// reserve them.
func shrinkToFit[T any](most int64, do func(most int64) (T, error)) (T, error) {
	for {
		got, err := do(most)
		if !insufficientStorage(err) || most <= minStreamBytes {
			return got, err
		}
		most = max(most-most/8, minStreamBytes)
	}
}

// Error codes of JetStream for too little storage. A cluster reports that no server is
// suitable, as it also does while it forms, and the reason.
const (
	errNoStorage jetstream.ErrorCode = 10047
	errNoPeers   jetstream.ErrorCode = 10005
)

// insufficientStorage reports whether the servers cannot reserve a stream's bytes.
func insufficientStorage(err error) bool {
	return isCode(err, errNoStorage) || isCode(err, errNoPeers) && strings.Contains(err.Error(), "insufficient storage")
}

// isCode reports whether err is an answer of the servers with one of the codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}
