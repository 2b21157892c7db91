//go:build amd64 || arm64

package spawn

// Old makes s one of a kernel without clone3.
func (s *Spawner) Old() *Spawner {
	s.old = true
	return s
}
