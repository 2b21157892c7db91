// Package e2a is the surface of e2a.bot's REST API: signing up, logging in, and API keys. It
// decodes requests for the operations and encodes their results.
//
// # Credentials
// The table of package family says which credential each route accepts, and the middleware has
// checked it. Signing up and logging in need none, and are limited per source and per address.
//
// # Errors
// An error is {"error": CODE, "message": TEXT}. Its status and its code follow from its kind, as
// for all families; a request that came too early has a Retry-After header.
package e2a
