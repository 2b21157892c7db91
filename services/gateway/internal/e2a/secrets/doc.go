// Package secrets is the part of e2a's surface for secret bundles: /v1/tenants/me/secrets.
//
// No response has a value. Errors about a body do not quote it, because it has values.
package secrets
