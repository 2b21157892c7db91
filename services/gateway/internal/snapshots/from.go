package snapshots

import (
	"maps"

	"github.com/millrace/millrace/events/sandbox"
)

// From returns req for a sandbox that starts from a snapshot: on its host or on one that can
// load it, with its limits, and at least as isolated as the snapshot's sandbox had to be.
func From(s *sandbox.Snapshot, req sandbox.Requested) sandbox.Requested {
	req.From, req.FromSandbox, req.FromHost = s.ID, s.Sandbox, s.Host
	req.Template = s.Template
	if s.Isolation.AtLeast(req.Isolation) {
		req.Isolation = s.Isolation
	}
	if s.Memory {
		req.Start = "" // its processes continue
	}
	req.CPUMilli, req.MemoryMiB, req.DiskMiB, req.PIDs = s.CPUMilli, s.MemoryMiB, s.DiskMiB, s.PIDs
	return req
}

// FromOwn is From for a client's own snapshot: processes start with the environment, user and
// directory of the snapshot's sandbox.
func (ss *Snapshots) FromOwn(s *sandbox.Snapshot, req sandbox.Requested) (sandbox.Requested, error) {
	env, err := s.OpenEnv(ss.core.Sealer, s.Tenant, string(s.ID))
	if err != nil {
		return req, err
	}
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env, req.User, req.Workdir, req.Start, req.Ready = env, s.User, s.Workdir, s.Start, s.Ready
	if req.Built = s.Name; s.Name == "" {
		req.Built, req.Alias = string(s.ID), "" // its id is the template's id, as with E2B
	}
	return From(s, req), nil
}
