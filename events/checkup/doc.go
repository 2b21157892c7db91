// Package checkup examines the NATS servers, the streams and the services of an installation, for
// `millrace doctor --cluster`. Examine collects what they report, and judge, a pure function, turns
// it into findings that say what to do. It creates and changes nothing.
package checkup
