package builds

import (
	"encoding/json"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// Credentials are those of an image registry.
type Credentials struct {
	Username, Password string
	Region             string // AWS region: then they are an access key, with which AWS issues the registry's credentials
}

func credentialsPlace(tenant string, id build.ID) seal.Place {
	return seal.Place{Tenant: tenant, Record: string(id), Field: "credentials"}
}

// SealCredentials encrypts the credentials of a tenant's build.
func (bs *Builds) SealCredentials(tenant string, id build.ID, with Credentials) ([]byte, error) {
	plain, err := json.Marshal([3]string{with.Username, with.Password, with.Region})
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "seal", "", err)
	}
	sealed, err := bs.core.Sealer.Seal(credentialsPlace(tenant, id), string(plain))
	return []byte(sealed), err
}

// OpenCredentials decrypts the result of SealCredentials.
func (bs *Builds) OpenCredentials(tenant string, id build.ID, sealed []byte) (Credentials, error) {
	plain, err := bs.core.Sealer.Open(credentialsPlace(tenant, id), seal.Text(sealed))
	var words [3]string
	if err == nil {
		err = json.Unmarshal([]byte(plain), &words)
	}
	return Credentials{words[0], words[1], words[2]}, kind.Wrap(kind.Internal, "open credentials", "", err)
}
