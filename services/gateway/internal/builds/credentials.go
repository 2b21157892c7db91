package builds

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"

	"github.com/millrace/millrace/events/kind"
)

// Credentials are those of an image registry.
type Credentials struct {
	Username, Password string
	Region             string // AWS region: then they are an access key, with which AWS issues the registry's credentials
}

// SealCredentials encrypts credentials for a record with a key that is derived from the
// cluster secret.
func (bs *Builds) SealCredentials(with Credentials) ([]byte, error) {
	plain, err := json.Marshal([3]string{with.Username, with.Password, with.Region})
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "seal", "", err)
	}
	gcm, err := bs.aead()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	return gcm.Seal(nonce, nonce, plain, nil), nil
}

// OpenCredentials decrypts the result of SealCredentials.
func (bs *Builds) OpenCredentials(sealed []byte) (Credentials, error) {
	gcm, err := bs.aead()
	if err != nil {
		return Credentials{}, err
	}
	n := gcm.NonceSize()
	if len(sealed) < n {
		return Credentials{}, kind.New(kind.Internal, "open credentials", "", "the sealed credentials are too short")
	}
	plain, err := gcm.Open(nil, sealed[:n], sealed[n:], nil)
	var words [3]string
	if err == nil {
		err = json.Unmarshal(plain, &words)
	}
	return Credentials{words[0], words[1], words[2]}, kind.Wrap(kind.Internal, "open credentials", "", err)
}

func (bs *Builds) aead() (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(bs.core.DeriveKey("credentials")))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "seal", "", err)
	}
	gcm, err := cipher.NewGCM(block)
	return gcm, kind.Wrap(kind.Internal, "seal", "", err)
}
