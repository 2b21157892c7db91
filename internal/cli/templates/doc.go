// Package templates has the command template: it builds templates on this machine or
// imports them from container images, uploads the parts that the gateway lacks, and lists
// and removes templates.
package templates
