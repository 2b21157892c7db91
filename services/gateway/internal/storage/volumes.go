package storage

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// maxVolumes is the maximum number of volumes per tenant.
const maxVolumes = 1000

// targetVolume is the target of streams for file requests about volumes.
const targetVolume = "volume"

// CreateVolume creates a volume on the host that has the tenant's other volumes, so that one
// sandbox can use them together, and returns when it exists. It returns Conflict if the name
// is taken, Exhausted if the tenant has 1000, and Unavailable if no host supports volumes.
func (sto *Storage) CreateVolume(ctx context.Context, p core.Principal, name string) (sandbox.Volume, error) {
	if err := sandbox.CheckVolumeName(name); err != nil {
		return sandbox.Volume{}, err
	}
	if err := p.RequireAPIKey("create volume"); err != nil {
		return sandbox.Volume{}, err
	}
	if err := sto.core.Sync(ctx); err != nil {
		return sandbox.Volume{}, err
	}
	all := sto.core.View.Volumes(func(v *sandbox.Volume) bool { return v.Tenant == p.Tenant && !v.Deleted })
	if len(all) >= maxVolumes {
		return sandbox.Volume{}, kind.Newf(kind.Exhausted, "create volume", "", "there are %d volumes: delete one first", len(all))
	}
	host, none := sto.awaitVolumeHost(ctx, p.Tenant)
	was, _ := sto.core.View.NamedVolume(p.Tenant, name)
	switch {
	case was.ID != "" && !was.Deleted:
		return was, kind.Newf(kind.Conflict, "create volume", "", "volume '%s' already exists", name)
	case was.Made:
		return was, kind.Newf(kind.Unavailable, "create volume", "", "the deleted volume '%s' is still being removed, try again", name)
	}
	if none != nil {
		return sandbox.Volume{}, none
	}
	v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: p.Tenant, Name: name, Host: host, Created: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, sto.core.CreateTimeout)
	defer cancel()
	if err := sto.core.Log.NewVolume(ctx, &v); err != nil {
		if kind.Is(err, kind.Conflict) {
			err = kind.Newf(kind.Conflict, "create volume", "", "volume '%s' already exists", name)
		} else {
			sto.abandonVolume(ctx, v) // it may be stored
		}
		return v, core.LogError("create volume", string(v.ID), err)
	}
	made, err := sto.core.View.AwaitVolume(ctx, p.Tenant, name, func(s *sandbox.Volume) bool { return s.ID == v.ID && s.Made })
	if err != nil {
		sto.abandonVolume(ctx, v)
		return v, &kind.Error{Op: "create volume", ID: string(v.ID), Kind: kind.Unavailable, Msg: "the volume was not made in time, try again", Err: err}
	}
	return made, nil
}

// abandonVolume deletes a volume that no client will receive; its host may have made it.
func (sto *Storage) abandonVolume(ctx context.Context, v sandbox.Volume) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sto.core.CallTimeout)
	defer cancel()
	for synced := false; ; synced = true {
		now, ok := sto.core.View.Volume(v.ID)
		if !ok && synced {
			return // it was never stored
		}
		var err error
		if ok {
			now.Deleted = true
			if err = sto.core.Log.PutVolume(ctx, &now); err == nil {
				return
			}
		}
		if err == nil || kind.Is(err, kind.Conflict) { // not in the view yet, or changed by its host
			err = sto.core.Sync(ctx)
		}
		if err != nil {
			sto.core.Slog.Warn("abandon volume failed", "volume", v.ID, "err", err)
			return
		}
	}
}

// startWait is the maximum wait for a starting host, as for a sandbox.
const startWait = 20 * time.Second

// awaitVolumeHost is volumeHost, but waits for starting hosts if no other is available.
func (sto *Storage) awaitVolumeHost(ctx context.Context, tenant string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	changed, stop := sto.core.View.Changes()
	defer stop()
	for {
		host, err := sto.volumeHost(tenant)
		if err == nil || !slices.ContainsFunc(sto.core.View.Hosts(), func(h fleet.Host) bool { return h.Alive(time.Now()) && h.Starting }) {
			return host, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", err
		}
	}
}

// volumeHost returns the host for a new volume: among those that support volumes the one with
// most of the tenant's, then the one with the fewest in total.
func (sto *Storage) volumeHost(tenant string) (string, error) {
	theirs, all := make(map[string]int), make(map[string]int)
	for _, v := range sto.core.View.Volumes(func(v *sandbox.Volume) bool { return !v.Deleted }) {
		all[v.Host]++
		if v.Tenant == tenant {
			theirs[v.Host]++
		}
	}
	hosts := sto.core.View.Hosts()
	hosts = slices.DeleteFunc(hosts, func(h fleet.Host) bool {
		return !h.Alive(time.Now()) || h.Draining || len(h.VolumeDrivers) == 0
	})
	if len(hosts) == 0 {
		return "", kind.New(kind.Unavailable, "create volume", "", "no host with volumes is available")
	}
	best := slices.MaxFunc(hosts, func(a, b fleet.Host) int {
		if d := theirs[a.Host] - theirs[b.Host]; d != 0 {
			return d
		}
		return all[b.Host] - all[a.Host]
	})
	return best.Host, nil
}

// Volume returns a volume by its id; a miss is not older than the call. It returns NotFound
// also for another tenant's.
func (sto *Storage) Volume(ctx context.Context, p core.Principal, id sandbox.VolumeID) (sandbox.Volume, error) {
	if v, ok := sto.core.View.Volume(id); ok && p.MayAccessVolume(&v) {
		return v, nil
	}
	if err := sto.core.Sync(ctx); err != nil {
		return sandbox.Volume{}, err
	}
	if v, ok := sto.core.View.Volume(id); ok && p.MayAccessVolume(&v) {
		return v, nil
	}
	return sandbox.Volume{}, noVolume(string(id))
}

func noVolume(id string) error {
	return kind.Newf(kind.NotFound, "find volume", id, "volume '%s' not found", id)
}

// Volumes returns the principal's volumes by name, not older than the call.
func (sto *Storage) Volumes(ctx context.Context, p core.Principal) ([]sandbox.Volume, error) {
	if err := sto.core.Sync(ctx); err != nil {
		return nil, err
	}
	return sto.core.View.Volumes(p.MayAccessVolume), nil
}

// DeleteVolume deletes a volume; its host removes the files. It returns Conflict while a
// sandbox uses it, NotFound for an unknown one.
func (sto *Storage) DeleteVolume(ctx context.Context, p core.Principal, id sandbox.VolumeID) error {
	if err := p.RequireAPIKey("delete volume"); err != nil {
		return err
	}
	if err := sto.core.Sync(ctx); err != nil {
		return err
	}
	v, err := sto.Volume(ctx, p, id)
	if err != nil {
		return err
	}
	uses := func(s *sandbox.State) bool {
		return !s.Over() && slices.ContainsFunc(s.Request.Volumes, func(m sandbox.Mount) bool { return m.Volume == id })
	}
	if users := sto.core.View.Sandboxes(uses); len(users) > 0 {
		return kind.Newf(kind.Conflict, "delete volume", string(id), "sandbox %s uses the volume", users[0].ID)
	}
	ctx, cancel := context.WithTimeout(ctx, sto.core.CallTimeout)
	defer cancel()
	v.Deleted = true
	if err := sto.core.Log.PutVolume(ctx, &v); err != nil {
		if kind.Is(err, kind.Conflict) { // another request deleted it
			err = noVolume(string(id))
		}
		return core.LogError("delete volume", string(id), err)
	}
	return sto.core.Sync(ctx)
}

// Mounts resolves the names of the volumes to mount in a new sandbox, and returns the host
// that has them; empty without mounts. It returns NotFound for an unknown volume, and Invalid
// if they are on different hosts.
func (sto *Storage) Mounts(ctx context.Context, p core.Principal, mounts []sandbox.Mount) ([]sandbox.Mount, string, error) {
	if err := sandbox.CheckMounts(mounts); err != nil || len(mounts) == 0 {
		return nil, "", err
	}
	if err := sto.core.Sync(ctx); err != nil {
		return nil, "", err
	}
	host := ""
	for i, m := range mounts {
		v, ok := sto.core.View.NamedVolume(p.Tenant, m.Name)
		switch {
		case !ok || !p.MayAccessVolume(&v):
			return nil, "", noVolume(m.Name)
		case host != "" && host != v.Host:
			return nil, "", kind.Newf(kind.Invalid, "mount volumes", "", "volume '%s' is on another host than '%s'", m.Name, mounts[0].Name)
		}
		host, mounts[i].Volume = v.Host, v.ID
	}
	return sandbox.ByDepth(mounts), host, nil
}

// OpenVolumeFiles sends a request about the files of a volume, with paths relative to its root.
// Errors: those of file.Request.Check, NotFound, and Unavailable while its host is away;
// errors of the host come from the methods of Files.
func (sto *Storage) OpenVolumeFiles(ctx context.Context, p core.Principal, id sandbox.VolumeID, req *file.Request) (*core.Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	v, err := sto.Volume(ctx, p, id)
	if err != nil {
		return nil, err
	}
	st := sandbox.State{Host: v.Host}
	if err := sto.core.RequireHost(&st); err != nil {
		return nil, kind.New(kind.Unavailable, "reach volume", string(id), "the volume's host does not answer, try again")
	}
	opening, cancel := context.WithTimeout(ctx, sto.core.CallTimeout)
	defer cancel()
	host, _ := sto.core.View.Host(v.Host)
	s, err := sto.core.Tunnels.Open(opening, v.Host, host.Epoch, string(id)+":"+targetVolume)
	if kind.Is(err, kind.Deadline) {
		err = kind.New(kind.Unavailable, "reach volume", string(id), "the volume's host does not answer, try again")
	}
	if err != nil {
		return nil, err
	}
	return core.OpenFilesOver(ctx, s, req)
}

// VolumeToken returns a volume's access token, which grants access to its files. It is
// derived as a sandbox's is.
func (sto *Storage) VolumeToken(id sandbox.VolumeID) string {
	mac := hmac.New(sha256.New, sto.core.Secret)
	mac.Write([]byte("volume"))
	mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil))
}

// VolumeBearer returns the principal of a request with a volume's token. It returns
// Unauthenticated for a wrong token, whether or not the volume exists, and NotFound for the
// right token of a deleted volume.
func (sto *Storage) VolumeBearer(ctx context.Context, id sandbox.VolumeID, token string) (core.Principal, error) {
	if !hmac.Equal([]byte(token), []byte(sto.VolumeToken(id))) {
		return core.Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "wrong volume token")
	}
	v, ok := sto.core.View.Volume(id)
	if !ok {
		if err := sto.core.Sync(ctx); err != nil {
			return core.Principal{}, err
		}
		if v, ok = sto.core.View.Volume(id); !ok {
			return core.Principal{}, noVolume(string(id))
		}
	}
	return core.Principal{Tenant: v.Tenant, Volume: id}, nil
}
