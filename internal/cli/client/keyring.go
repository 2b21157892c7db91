package client

import (
	"context"
	"time"
)

// Keyring is the state of the keys that seal stored secrets.
type Keyring struct {
	Master   string       `json:"master_key"` // id of the master key that seals the data keys
	DataKeys []DataKey    `json:"data_keys"`  // oldest first
	Resealed uint64       `json:"resealed"`   // values that were sealed again with the current data key
	Left     uint64       `json:"left"`       // values that are still to be sealed again
	Sealed   bool         `json:"sealed"`     // all values that can be sealed again are
	Services []KeyService `json:"services"`
	Changes  []KeyChange  `json:"changes"` // oldest first
}

// DataKey is a key that seals values.
type DataKey struct {
	Number  uint32     `json:"number"`
	State   string     `json:"state"`                // current or replaced
	Stream  string     `json:"used_by,omitempty"`    // stream with a value that needs it
	Stored  *time.Time `json:"used_since,omitempty"` // when that value was stored
	Checked *time.Time `json:"checked_at,omitempty"` // time of the last search
}

// KeyService is a running service that uses the keys.
type KeyService struct {
	Name    string   `json:"name"`
	Masters []string `json:"master_keys"` // ids, the current one first
	OK      bool     `json:"ok"`          // it can open the current data key
	Problem string   `json:"problem,omitempty"`
}

// KeyChange is a change of the keys.
type KeyChange struct {
	Time   time.Time `json:"time"`
	Type   string    `json:"type"` // created, master_key, data_key_made or data_key_removed
	Data   uint32    `json:"data_key,omitempty"`
	Master string    `json:"master_key"`
	By     string    `json:"by,omitempty"`
}

// Current returns the number of the current data key; 0 if there is none.
func (k *Keyring) Current() uint32 {
	for _, d := range k.DataKeys {
		if d.State == "current" {
			return d.Number
		}
	}
	return 0
}

// Keyring returns the state of the keys.
func (c *Client) Keyring(ctx context.Context) (k Keyring, err error) {
	_, err = c.Call(ctx, &Request{Method: "GET", Path: "/v1/keyring"}, &k)
	return k, err
}

// RotateMasterKey seals the keys with the gateway's current master key, also repeatedly.
func (c *Client) RotateMasterKey(ctx context.Context, force bool) (k Keyring, err error) {
	_, err = c.Call(ctx, &Request{Method: "POST", Path: "/v1/keyring/master", JSON: map[string]any{"force": force}}, &k)
	return k, err
}

// RotateDataKey replaces a data key unless that was done before.
func (c *Client) RotateDataKey(ctx context.Context, replaces uint32, force bool) (k Keyring, err error) {
	_, err = c.Call(ctx, &Request{Method: "POST", Path: "/v1/keyring/data", JSON: map[string]any{"replaces": replaces, "force": force}}, &k)
	return k, err
}
