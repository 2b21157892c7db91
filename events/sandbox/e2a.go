package sandbox

import "github.com/millrace/millrace/events/seal"

// E2A is what a client of e2a's API asks for, besides the sandbox itself.
type E2A struct {
	App         string // JSON of the application; empty: the default one
	Persistence Persistence
}

// Persistence is a tenant's backend for what is said in a conversation. The zero value has no backend.
type Persistence struct {
	URL          string
	Auth         seal.Text // value of the Authorization header; see [PersistencePlace]
	Conversation string    // its id in requests; empty: that of the sandbox
	Generation   uint32    // of the sandbox in the conversation
}

// PersistencePlace returns the place of the sealed header for a backend of a tenant. It does not
// contain the sandbox, because all sandboxes of a conversation use one value.
func PersistencePlace(tenant, url string) seal.Place {
	return seal.Place{Tenant: tenant, Record: "persistence", Field: "authorization for " + url}
}

// SealPersistence returns a backend with its sealed header. Without a URL there is none.
func SealPersistence(r *seal.Ring, tenant, url, auth string) (Persistence, error) {
	p := Persistence{URL: url}
	if url == "" || auth == "" {
		return p, nil
	}
	var err error
	p.Auth, err = r.Seal(PersistencePlace(tenant, url), auth)
	return p, err
}

// OpenAuth returns the header for requests to the backend; empty: they have none.
func (p *Persistence) OpenAuth(r *seal.Ring, tenant string) (string, error) {
	if len(p.Auth) == 0 {
		return "", nil
	}
	return r.Open(PersistencePlace(tenant, p.URL), p.Auth)
}
