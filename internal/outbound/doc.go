// Package outbound limits the requests that the product makes to addresses that tenants chose: to
// webhooks, to persistence backends and to language models.
//
// # Addresses
// Such a request reaches public addresses and those that the operator allows ([sandbox.Operator]),
// but never an address of the machine itself unless the operator allows it. Otherwise a tenant could
// reach the cloud's metadata service, or local services that trust local clients.
//
// # When it is checked
// [Policy.Check] checks a URL when a tenant sets it: its scheme, its host in every spelling, and all
// addresses of its name. A name that has no address then is accepted. What protects is the check at
// each dial ([Policy.Client]), which a name server that changes its answer cannot avoid. A redirect
// is checked like the first URL.
package outbound
