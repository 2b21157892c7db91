//go:build amd64 || arm64

package spawn

// Old makes s behave as on a kernel without clone3.
func (s *Spawner) Old() *Spawner {
	s.old = true
	return s
}
