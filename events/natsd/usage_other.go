//go:build !linux

package natsd

// StopUsageSampling does nothing: nats-server reads no file by itself on this system.
func StopUsageSampling() {}
