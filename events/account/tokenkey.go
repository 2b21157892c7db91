package account

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/events/seal"
)

// TokenKey is a key that signs the tokens of users.
type TokenKey struct {
	Number uint32 // from 1
	Made   time.Time
	Sealed seal.Text
}

// Place returns the place of the sealed key.
func (k *TokenKey) Place() seal.Place {
	return seal.Place{Record: fmt.Sprintf("token key %d", k.Number), Field: "key"}
}
