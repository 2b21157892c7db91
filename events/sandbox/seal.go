package sandbox

import (
	"crypto/aes"
	"crypto/cipher"

	"github.com/millrace/millrace/events/kind"
)

// Sealed is a text that must not be read in a record, as only a Sealer reads it.
type Sealed string

// Sealer hides texts from whoever reads records: gateways seal, hosts open. Its
// methods may be called concurrently.
type Sealer struct{ aead cipher.AEAD }

// SealerSecret is the name of the cluster's secret that a Sealer is made of.
const SealerSecret = "network"

// NewSealer makes a Sealer of 32 secret bytes.
func NewSealer(secret []byte) (*Sealer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "make sealer", "", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "make sealer", "", err)
	}
	return &Sealer{aead}, nil
}

// Seal hides a text. An empty one stays empty.
func (s *Sealer) Seal(text string) Sealed {
	if text == "" {
		return ""
	}
	return Sealed(s.aead.Seal(nil, nil, []byte(text), nil))
}

// Open reads what Seal hid; Internal if that was another cluster's, or damaged.
func (s *Sealer) Open(t Sealed) (string, error) {
	if t == "" {
		return "", nil
	}
	text, err := s.aead.Open(nil, nil, []byte(t), nil)
	if err != nil {
		return "", kind.New(kind.Internal, "open", "", "a sealed text cannot be read")
	}
	return string(text), nil
}
