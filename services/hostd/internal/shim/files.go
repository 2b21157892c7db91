package shim

import "github.com/millrace/millrace/services/hostd/internal/files"

// openFiles prepares the file server. The shim's own root is the sandbox's.
func (s *Shim) openFiles() error {
	srv, err := files.New(files.Config{
		Procs: true,
		Lookup: func(user string) (files.Account, error) {
			a, err := s.users.Lookup(user)
			return files.Account{Home: a.Home, UID: a.UID, GID: a.GID}, err
		},
		Name: func(group bool, id uint32) string {
			if group {
				return s.users.GroupName(id)
			}
			return s.users.UserName(id)
		},
	})
	s.files = srv
	return err
}
