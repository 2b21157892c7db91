package disk

import "github.com/millrace/millrace/services/hostd/internal/driver"

const (
	reserveBytes   = 1 << 30 // bytes of the host's disk that are kept free, or
	reserveFiles   = 1 << 16 // inodes that are kept free, or
	reserveDivisor = 20      // one 20th of a small disk, if that is less
	nearFactor     = 2       // times the reserve: below it, the growth of volumes is measured
)

// Space is the space of a file system.
type Space struct {
	Free, Total      uint64 // bytes; Free for users other than root
	FreeFiles, Files uint64 // inodes; 0 where the file system has no fixed number
}

// Reserve returns how many bytes of the disk are kept free.
func (d Space) Reserve() uint64 { return min(d.Total/reserveDivisor, reserveBytes) }

// Margin returns how many bytes are free on a disk that is not close to short of space.
func (d Space) Margin() uint64 { return nearFactor * d.Reserve() }

// shortage is a resource that a disk is short of.
type shortage struct {
	what          string
	free, reserve uint64
	usage         func(*driver.Stats) uint64 // usage of a sandbox
}

// shortages returns the resources of which less than part of the reserve is free.
func (d Space) shortages(part float64) (all []shortage) {
	for _, s := range [...]shortage{
		{"bytes", d.Free, d.Reserve(), func(s *driver.Stats) uint64 { return s.DiskBytes }},
		{"files", d.FreeFiles, min(d.Files/reserveDivisor, reserveFiles), func(s *driver.Stats) uint64 { return s.DiskFiles }},
	} {
		if float64(s.free) < part*float64(s.reserve) {
			all = append(all, s)
		}
	}
	return all
}
