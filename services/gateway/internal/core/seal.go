package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"

	"github.com/millrace/millrace/events/kind"
)

// SealCredentials makes what can be put on record of a name and a password: only
// who knows the cluster's secret can open it.
func (c *Core) SealCredentials(username, password string) ([]byte, error) {
	plain, err := json.Marshal([2]string{username, password})
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "seal", "", err)
	}
	box, err := c.box()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	rand.Read(nonce) //nolint:errcheck // crypto/rand.Read never fails since Go 1.24
	return box.Seal(nonce, nonce, plain, nil), nil
}

// OpenCredentials opens what SealCredentials made.
func (c *Core) OpenCredentials(sealed []byte) (username, password string, err error) {
	box, err := c.box()
	if err != nil {
		return "", "", err
	}
	n := box.NonceSize()
	if len(sealed) < n {
		return "", "", kind.New(kind.Internal, "open credentials", "", "they are damaged")
	}
	plain, err := box.Open(nil, sealed[:n], sealed[n:], nil)
	var pair [2]string
	if err == nil {
		err = json.Unmarshal(plain, &pair)
	}
	return pair[0], pair[1], kind.Wrap(kind.Internal, "open credentials", "", err)
}

func (c *Core) box() (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(c.Secretly("credentials")))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "seal", "", err)
	}
	box, err := cipher.NewGCM(block)
	return box, kind.Wrap(kind.Internal, "seal", "", err)
}
