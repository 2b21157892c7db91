// Package family determines the client protocol that a request belongs to, and how the gateway
// treats the request before a handler runs.
//
// A family is a set of client protocols with common rules. [Of] maps a request's host, path
// and Upgrade header to a [Part] of a family: the accepted credentials and their places in the
// request, the form of errors, the treatment of the body, the sandbox that must run, and the
// allowed origins. The middleware reads the part and contains no path of its own. A new family
// is a new package with handlers, and rows in the table.
//
// Of depends on nothing but its arguments, which include the gateway's own host names. A path that no row covers belongs to E2B and requires
// an API key.
package family
