package provision

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Idempotency makes several requests one: all requests of a tenant with the same key have
// the effect of one and get its answer, at any gateway, for as long as the record of the
// result is kept.
type Idempotency struct {
	Key     string // the client's key; empty: each request is separate
	Request []byte // all parts of the request that determine its effect
}

// digest identifies text without disclosing it: ids are derived from it, and records contain it.
func (pr *Provisioner) digest(parts ...string) []byte {
	mac := hmac.New(sha256.New, pr.core.Secret)
	for _, part := range parts {
		mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return mac.Sum(nil)
}

// keyText returns the text from which the id of a keyed request's result is derived. It cannot
// be computed without the cluster secret.
func (pr *Provisioner) keyText(p core.Principal, what, key string) string {
	return hex.EncodeToString(pr.digest("idempotency", what, p.Tenant, key))
}

func (pr *Provisioner) hash(i *Idempotency) []byte { return pr.digest("request", string(i.Request)) }

func errReused(what string) error {
	return kind.Coded(kind.Conflict, "create "+what, "", "idempotency_key_reused", "the idempotency key was used with another request")
}

// KeyedSandbox returns the sandbox that an earlier request with the same key created, also if
// it has ended since. ok is false if no such sandbox exists or it never ran: a refused request may
// be retried. It returns Conflict if the key was used with another request.
func (pr *Provisioner) KeyedSandbox(ctx context.Context, p core.Principal, by Idempotency) (st sandbox.State, ok bool, err error) {
	if by.Key == "" {
		return st, false, nil
	}
	if err := p.MayCreate(); err != nil {
		return st, false, err
	}
	_, st, err = pr.attempt(ctx, p, &by)
	ok = err == nil && !st.Started.IsZero()
	if ok && st.IsRunning() && st.Request.Start != "" { // a gateway may have died before it did this
		pr.procs.RunTemplateCommand(ctx, p, &st)
	}
	return st, ok, err
}

// attempt returns the newest attempt to create the sandbox of a key: its id and, if its
// record exists, its state. An attempt that ended before the sandbox ran is followed by
// another.
func (pr *Provisioner) attempt(ctx context.Context, p core.Principal, by *Idempotency) (sandbox.ID, sandbox.State, error) {
	if err := pr.core.Sync(ctx); err != nil {
		return "", sandbox.State{}, err
	}
	hash := pr.hash(by)
	for n := 0; ; n++ {
		id := sandbox.KeyedID(pr.keyText(p, "sandbox "+strconv.Itoa(n), by.Key))
		st, ok := pr.core.View.Sandbox(id)
		switch {
		case !ok:
			return id, sandbox.State{}, nil
		case !bytes.Equal(st.Request.RequestHash, hash):
			return id, st, errReused("sandbox")
		case !st.Over() || !st.Started.IsZero():
			return id, st, nil
		}
	}
}

// CreateKeyedSandbox is CreateSandbox for a client that may retry its request. A request
// that fails leaves the sandbox to the next one with the same key; without one it ends at
// Requested.RunBy.
func (pr *Provisioner) CreateKeyedSandbox(ctx context.Context, p core.Principal, by Idempotency, req sandbox.Requested) (sandbox.State, error) {
	if by.Key == "" {
		return pr.CreateSandbox(ctx, p, req)
	}
	if err := p.MayCreate(); err != nil {
		return sandbox.State{}, err
	}
	id, _, err := pr.attempt(ctx, p, &by)
	if err != nil {
		return sandbox.State{}, err
	}
	req.RequestHash = pr.hash(&by)
	st, err := pr.createSandbox(ctx, p, id, req)
	switch {
	case st.ID != "" && !bytes.Equal(st.Request.RequestHash, req.RequestHash):
		return st, errReused("sandbox") // it was created at the same moment
	case err != nil:
		return st, err
	case st.Request.Start != "" && st.IsRunning():
		pr.procs.RunTemplateCommand(ctx, p, &st)
	}
	return st, nil
}
