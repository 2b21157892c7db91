package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
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
func (c *Core) CreateSecret(ctx context.Context, p Principal, name, value string, meta map[string]string) (events.Secret, error) {
	name, err := secretName(name)
	if err == nil {
		err = checkSecret(value, meta)
	}
	if err == nil {
		err = p.RequireAPIKey("create secret")
	}
	if err == nil {
		err = c.Sync(ctx)
	}
	if err != nil {
		return events.Secret{}, err
	}
	id := secretID(p.Tenant, name)
	was, ok := c.View.TenantSecret(p.Tenant, id)
	if ok && !was.Removed {
		return events.Secret{}, kind.Newf(kind.Conflict, "create secret", id, "secret '%s' already exists", name)
	}
	if n := len(c.View.TenantSecrets(p.Tenant)); n >= maxSecrets {
		return events.Secret{}, kind.Newf(kind.Exhausted, "create secret", "", "there are %d secrets: delete one first", n)
	}
	now := time.Now()
	s := events.Secret{ID: id, Tenant: p.Tenant, Name: name, Metadata: meta, Created: now, Updated: now}
	return c.storeSecret(ctx, s, value, c.Log.NewSecret)
}

// UpdateSecret stores a secret's next value, and its metadata unless nil. The previous value
// is gone then.
func (c *Core) UpdateSecret(ctx context.Context, p Principal, ref, value string, meta map[string]string) (events.Secret, error) {
	if err := checkSecret(value, meta); err != nil {
		return events.Secret{}, err
	}
	s, err := c.Secret(ctx, p, ref)
	if err != nil {
		return s, err
	}
	if s.Updated = time.Now(); meta != nil {
		s.Metadata = meta
	}
	return c.storeSecret(ctx, s, value, c.Log.PutSecret)
}

func (c *Core) storeSecret(ctx context.Context, s events.Secret, value string, store func(context.Context, *events.Secret) error) (events.Secret, error) {
	s.Version++
	s.Sealed = c.Sealer.Seal(value)
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	err := store(ctx, &s)
	if kind.Is(err, kind.Conflict) {
		err = kind.Newf(kind.Conflict, "store secret", s.ID, "secret '%s' was changed at the same time", s.Name)
	}
	if err == nil {
		err = c.Sync(ctx)
	}
	return s, LogError("store secret", s.ID, err)
}

// Secret returns a secret by its id or name, not older than the call. It returns NotFound
// also for another tenant's.
func (c *Core) Secret(ctx context.Context, p Principal, ref string) (events.Secret, error) {
	if err := p.RequireAPIKey("find secret"); err != nil {
		return events.Secret{}, err
	}
	if err := c.Sync(ctx); err != nil {
		return events.Secret{}, err
	}
	id := ref
	if name, err := secretName(ref); err == nil {
		id = secretID(p.Tenant, name)
	}
	s, ok := c.View.TenantSecret(p.Tenant, id)
	if !ok || s.Removed {
		return events.Secret{}, kind.New(kind.NotFound, "find secret", "", "secret not found")
	}
	return s, nil
}

// Secrets returns the principal's secrets by name, not older than the call.
func (c *Core) Secrets(ctx context.Context, p Principal) ([]events.Secret, error) {
	if err := p.RequireAPIKey("list secrets"); err != nil {
		return nil, err
	}
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	return c.View.TenantSecrets(p.Tenant), nil
}

// DeleteSecret removes a secret and its value. It returns NotFound for an unknown one.
func (c *Core) DeleteSecret(ctx context.Context, p Principal, ref string) error {
	s, err := c.Secret(ctx, p, ref)
	if err != nil {
		return err
	}
	s.Removed, s.Sealed, s.Metadata = true, "", nil
	s.Version = 0
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	if err := c.Log.PutSecret(ctx, &s); err != nil {
		if kind.Is(err, kind.Conflict) {
			err = kind.New(kind.Conflict, "delete secret", s.ID, "the secret was changed at the same time")
		}
		return LogError("delete secret", s.ID, err)
	}
	return c.Sync(ctx)
}
