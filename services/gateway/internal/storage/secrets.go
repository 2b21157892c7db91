package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	secretPrefix    = "sec_" // prefix of ids, which no name may have
	maxSecretName   = 128
	maxSecretValue  = 64 << 10
	maxSecretMeta   = 16 << 10
	secretHashBytes = 12
	maxSecrets      = 1000 // of a tenant
)

// secretID derives a secret's id from its name, so that a tenant's names are unique.
func secretID(tenant, name string) string {
	sum := sha256.Sum256([]byte("secret\x00" + tenant + "\x00" + name))
	return secretPrefix + hex.EncodeToString(sum[:secretHashBytes])
}

// secretName checks a name and returns it in lower case, as it is stored.
func secretName(s string) (string, error) {
	bad := s == "" || len(s) > maxSecretName || strings.ContainsAny(s, "{}") || strings.ContainsFunc(s, unicode.IsControl)
	name := strings.ToLower(s)
	if bad || strings.HasPrefix(name, secretPrefix) {
		return "", kind.Newf(kind.Invalid, "parse secret name", "",
			"a secret's name has 1 to %d bytes, no braces and no control characters, and does not begin with %s", maxSecretName, secretPrefix)
	}
	return name, nil
}

func checkSecret(value string, meta map[string]string) error {
	size := 0
	for k, v := range meta {
		size += len(k) + len(v)
	}
	switch {
	case value == "":
		return kind.New(kind.Invalid, "store secret", "", "value is required")
	case len(value) > maxSecretValue:
		return kind.Newf(kind.Invalid, "store secret", "", "the value has more than %d bytes", maxSecretValue)
	case size > maxSecretMeta:
		return kind.Newf(kind.Invalid, "store secret", "", "the metadata has more than %d bytes", maxSecretMeta)
	}
	return nil
}

// CreateSecret stores a tenant's secret. No method returns its value: it is decrypted where
// it is used. It returns Conflict if the name is taken, and Exhausted if the tenant has 1000
// secrets: every gateway and host holds all of them in memory.
func (sto *Storage) CreateSecret(ctx context.Context, p core.Principal, name, value string, meta map[string]string) (catalog.Secret, error) {
	name, err := secretName(name)
	if err == nil {
		err = checkSecret(value, meta)
	}
	if err == nil {
		err = p.RequireAPIKey("create secret")
	}
	if err == nil {
		err = sto.core.Sync(ctx)
	}
	if err != nil {
		return catalog.Secret{}, err
	}
	id := secretID(p.Tenant, name)
	was, ok := sto.core.View.TenantSecret(p.Tenant, id)
	if ok && !was.Removed {
		return catalog.Secret{}, kind.Newf(kind.Conflict, "create secret", id, "secret '%s' already exists", name)
	}
	if n := len(sto.core.View.TenantSecrets(p.Tenant)); n >= maxSecrets {
		return catalog.Secret{}, kind.Newf(kind.Exhausted, "create secret", "", "there are %d secrets: delete one first", n)
	}
	now := time.Now()
	s := catalog.Secret{ID: id, Tenant: p.Tenant, Name: name, Metadata: meta, Created: now, Updated: now}
	return sto.storeSecret(ctx, s, value, sto.core.Log.NewSecret)
}

// UpdateSecret stores a secret's next value, and its metadata unless nil. The previous value
// is gone then.
func (sto *Storage) UpdateSecret(ctx context.Context, p core.Principal, ref, value string, meta map[string]string) (catalog.Secret, error) {
	if err := checkSecret(value, meta); err != nil {
		return catalog.Secret{}, err
	}
	s, err := sto.Secret(ctx, p, ref)
	if err != nil {
		return s, err
	}
	for {
		next := s
		if next.Updated = time.Now(); meta != nil {
			next.Metadata = meta
		}
		stored, err := sto.storeSecret(ctx, next, value, sto.core.Log.PutSecret)
		if !sto.resealed(ctx, p, &s, err) {
			return stored, err
		}
	}
}

// resealed reports whether err is a conflict with a pass that only sealed the secret again. Then s
// is the secret as stored now.
func (sto *Storage) resealed(ctx context.Context, p core.Principal, s *catalog.Secret, err error) bool {
	if !kind.Is(err, kind.Conflict) {
		return false
	}
	now, err := sto.Secret(ctx, p, s.ID)
	if err != nil || now.Version != s.Version || now.Rev == s.Rev {
		return false
	}
	*s = now
	return true
}

func (sto *Storage) storeSecret(ctx context.Context, s catalog.Secret, value string, store func(context.Context, *catalog.Secret) error) (catalog.Secret, error) {
	s.Version++
	var err error
	if s.Sealed, err = sto.core.Sealer.Seal(s.Place(), value); err != nil {
		return s, core.LogError("store secret", s.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, sto.core.CallTimeout)
	defer cancel()
	err = store(ctx, &s)
	if kind.Is(err, kind.Conflict) {
		err = kind.Newf(kind.Conflict, "store secret", s.ID, "secret '%s' was changed at the same time", s.Name)
	}
	if err == nil {
		err = sto.core.Sync(ctx)
	}
	return s, core.LogError("store secret", s.ID, err)
}

// Secret returns a secret by its id or name, not older than the call. It returns NotFound
// also for another tenant's.
func (sto *Storage) Secret(ctx context.Context, p core.Principal, ref string) (catalog.Secret, error) {
	if err := p.RequireAPIKey("find secret"); err != nil {
		return catalog.Secret{}, err
	}
	if err := sto.core.Sync(ctx); err != nil {
		return catalog.Secret{}, err
	}
	id := ref
	if name, err := secretName(ref); err == nil {
		id = secretID(p.Tenant, name)
	}
	s, ok := sto.core.View.TenantSecret(p.Tenant, id)
	if !ok || s.Removed {
		return catalog.Secret{}, kind.New(kind.NotFound, "find secret", "", "secret not found")
	}
	return s, nil
}

// Secrets returns the principal's secrets by name, not older than the call.
func (sto *Storage) Secrets(ctx context.Context, p core.Principal) ([]catalog.Secret, error) {
	if err := p.RequireAPIKey("list secrets"); err != nil {
		return nil, err
	}
	if err := sto.core.Sync(ctx); err != nil {
		return nil, err
	}
	return sto.core.View.TenantSecrets(p.Tenant), nil
}

// DeleteSecret removes a secret and its value. It returns NotFound for an unknown one.
func (sto *Storage) DeleteSecret(ctx context.Context, p core.Principal, ref string) error {
	s, err := sto.Secret(ctx, p, ref)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sto.core.CallTimeout)
	defer cancel()
	for {
		gone := s
		gone.Removed, gone.Sealed, gone.Metadata = true, "", nil
		gone.Version = 0
		err := sto.core.Log.PutSecret(ctx, &gone)
		switch {
		case err == nil:
			return sto.core.Sync(ctx)
		case sto.resealed(ctx, p, &s, err):
			continue
		case kind.Is(err, kind.Conflict):
			err = kind.New(kind.Conflict, "delete secret", s.ID, "the secret was changed at the same time")
		}
		return core.LogError("delete secret", s.ID, err)
	}
}
