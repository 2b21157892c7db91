// Package openapi serves the OpenAPI 3.1 document of a gateway's REST routes.
//
// The document is one YAML text that is written by hand, in one file per family under spec, joined in
// the order of their names. A test of the gateway compares it with the router, both ways.
package openapi
