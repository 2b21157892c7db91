// Package shares has the command share: it creates, lists and revokes links with which
// onlookers read a terminal.
package shares
