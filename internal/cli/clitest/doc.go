// Package clitest provides a fake gateway with one process for tests of client commands.
package clitest
