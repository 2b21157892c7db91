//go:build amd64 || arm64

package spawn

// WithoutClone3 makes s behave as on a kernel without clone3.
func (s *Spawner) WithoutClone3() *Spawner {
	s.noClone3 = true
	return s
}
