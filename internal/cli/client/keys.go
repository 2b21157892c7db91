package client

import "context"

// keyWire is an API key or key pair as the gateway sends it; Key and SecretKey are set only in
// the response to create.
type keyWire struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	CreatedAt moment `json:"createdAt"`
	Mask      struct {
		Prefix string `json:"prefix"`
		Begin  string `json:"maskedValuePrefix"`
	} `json:"mask"`
}

// Key is an API key as the CLI prints it.
type Key struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Key       string `json:"key,omitempty"`
	AccessKey string `json:"access_key,omitempty"` // of a key pair
	SecretKey string `json:"secret_key,omitempty"` // of a key pair
	Begin     string `json:"begin,omitempty"`      // first characters of the key
	CreatedAt moment `json:"created_at"`
}

func (k *keyWire) info() Key {
	return Key{ID: k.ID, Name: k.Name, Key: k.Key, AccessKey: k.AccessKey, SecretKey: k.SecretKey, Begin: k.Mask.Prefix + k.Mask.Begin, CreatedAt: k.CreatedAt}
}

// Keys returns all API keys of the tenant.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var all []keyWire
	_, err := c.Call(ctx, &Request{Method: "GET", Path: "/api-keys"}, &all)
	out := make([]Key, len(all))
	for i := range all {
		out[i] = all[i].info()
	}
	return out, err
}

// CreateKey creates an API key, or a key pair.
func (c *Client) CreateKey(ctx context.Context, name string, pair bool) (Key, error) {
	var k keyWire
	_, err := c.Call(ctx, &Request{Method: "POST", Path: "/api-keys", JSON: map[string]any{"name": name, "pair": pair}}, &k)
	return k.info(), err
}
