package build

import (
	"slices"

	"github.com/millrace/millrace/events/seal"
)

func envPlace(tenant string, id ID) seal.Place {
	return seal.Place{Tenant: tenant, Record: string(id), Field: "environment"}
}

// Seal returns s for the record of a tenant's build: only the ring can read its ENV steps.
func (s *Spec) Seal(r *seal.Ring, tenant string, id ID) (Spec, error) {
	out := *s
	out.Steps = slices.Clone(s.Steps)
	for i := range out.Steps {
		step := &out.Steps[i]
		if step.Type != Env {
			continue
		}
		sealed, err := r.SealList(envPlace(tenant, id), step.Args)
		if err != nil {
			return Spec{}, err
		}
		step.Args, step.Sealed = nil, sealed
	}
	return out, nil
}

// Open returns a spec that Seal returned with readable steps. Older steps are not sealed.
func (s *Spec) Open(r *seal.Ring, tenant string, id ID) (Spec, error) {
	out := *s
	out.Steps = slices.Clone(s.Steps)
	for i := range out.Steps {
		step := &out.Steps[i]
		if step.Sealed == "" {
			continue
		}
		args, err := r.OpenList(envPlace(tenant, id), step.Sealed)
		if err != nil {
			return Spec{}, err
		}
		step.Args, step.Sealed = args, ""
	}
	return out, nil
}

// Seal returns b for the record of a tenant's build: only the ring can read its environment.
func (b Based) Seal(r *seal.Ring, tenant string, id ID) (Based, error) {
	sealed, err := r.SealMap(envPlace(tenant, id), b.Env)
	b.Env, b.Sealed = nil, sealed
	return b, err
}

// OpenEnv returns the environment of a base that Seal returned. Older ones are not sealed.
func (b *Based) OpenEnv(r *seal.Ring, tenant string, id ID) (map[string]string, error) {
	if b.Sealed == "" {
		return b.Env, nil
	}
	return r.OpenMap(envPlace(tenant, id), b.Sealed)
}
