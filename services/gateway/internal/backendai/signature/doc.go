// Package signature checks the signatures of Backend.AI's clients: an HMAC over the request line
// and some headers with the secret of a key pair.
//
// # What is signed
// The method, the request target and the Host header exactly as received, the date as sent, the
// media type without parameters, the version header, and the hash of an empty body: clients from
// v4.20181215 on do not sign the body. The key is derived from the secret, the day of the date in
// its own zone, and the Host.
//
// # Errors
// A header or date that cannot be read is Invalid with the code [BadParams]; an absent header, an
// unknown access key or a wrong signature is Unauthenticated with the code [Failed]. Both take
// the same time whether or not the access key exists.
package signature
