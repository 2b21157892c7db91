package sandbox

import (
	"crypto/aes"
	"crypto/cipher"

	"github.com/millrace/millrace/events/kind"
)

// Sealed is an encrypted text in a record. Only a Sealer can read it.
type Sealed string

// Sealer encrypts texts against readers of records: gateways seal, hosts open. Its methods
// may be called concurrently.
type Sealer struct{ aead cipher.AEAD }

// SealerSecret is the name of the cluster's secret from which a Sealer is made.
const SealerSecret = "network"

// NewSealer returns a Sealer with a key of 32 bytes.
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

// Seal encrypts a text. An empty one stays empty.
func (s *Sealer) Seal(text string) Sealed {
	if text == "" {
		return ""
	}
	return Sealed(s.aead.Seal(nil, nil, []byte(text), nil))
}

// Open decrypts a text from Seal. It returns Internal if the text is another cluster's, or
// damaged.
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
