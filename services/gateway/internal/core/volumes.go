package core

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
)

// maxVolumes is how many a tenant may have.
const maxVolumes = 1000

// targetVolume is what the streams of questions about volumes name.
const targetVolume = "volume"

// CreateVolume makes a volume on the host that has the tenant's others, so that one
// sandbox can use them together, and returns when it is there. Conflict if the name
// is taken, Exhausted where there are 1000, Unavailable where no host can have it.
func (c *Core) CreateVolume(ctx context.Context, p Principal, name string) (sandbox.Volume, error) {
	if err := sandbox.CheckVolumeName(name); err != nil {
		return sandbox.Volume{}, err
	}
	if err := p.whole("create volume"); err != nil {
		return sandbox.Volume{}, err
	}
	if err := c.Sync(ctx); err != nil {
		return sandbox.Volume{}, err
	}
	all := c.view.Volumes(func(v *sandbox.Volume) bool { return v.Tenant == p.Tenant && !v.Deleted })
	if len(all) >= maxVolumes {
		return sandbox.Volume{}, kind.Newf(kind.Exhausted, "create volume", "", "there are %d volumes: delete one first", len(all))
	}
	host, none := c.awaitVolumeHost(ctx, p.Tenant)
	was, _ := c.view.NamedVolume(p.Tenant, name)
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
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CreateTimeout)
	defer cancel()
	if err := c.log.NewVolume(ctx, &v); err != nil {
		if kind.Is(err, kind.Conflict) {
			err = kind.Newf(kind.Conflict, "create volume", "", "volume '%s' already exists", name)
		} else {
			c.abandonVolume(ctx, v) // it may be stored
		}
		return v, logError("create volume", string(v.ID), err)
	}
	made, err := c.view.AwaitVolume(ctx, p.Tenant, name, func(s *sandbox.Volume) bool { return s.ID == v.ID && s.Made })
	if err != nil {
		c.abandonVolume(ctx, v)
		return v, &kind.Error{Op: "create volume", ID: string(v.ID), Kind: kind.Unavailable, Msg: "the volume was not made in time, try again", Err: err}
	}
	return made, nil
}

// abandonVolume takes back a volume that nobody will get; its host may have made it.
func (c *Core) abandonVolume(ctx context.Context, v sandbox.Volume) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.CallTimeout)
	defer cancel()
	for synced := false; ; synced = true {
		now, ok := c.view.Volume(v.ID)
		if !ok && synced {
			return // it was not stored
		}
		var err error
		if ok {
			now.Deleted = true
			if err = c.log.PutVolume(ctx, &now); err == nil {
				return
			}
		}
		if err == nil || kind.Is(err, kind.Conflict) { // not heard of yet, or its host has made it
			err = c.Sync(ctx)
		}
		if err != nil {
			c.slog.Warn("abandon volume", "volume", v.ID, "err", err)
			return
		}
	}
}

// startWait is how long a volume waits for a host that begins, as a sandbox does.
const startWait = 20 * time.Second

// awaitVolumeHost is volumeHost, which waits for hosts that begin where no other is.
func (c *Core) awaitVolumeHost(ctx context.Context, tenant string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	changed, stop := c.view.Changes()
	defer stop()
	for {
		host, err := c.volumeHost(tenant)
		if err == nil || !slices.ContainsFunc(c.view.Hosts(), func(h fleet.Host) bool { return h.Alive(time.Now()) && h.Starting }) {
			return host, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", err
		}
	}
}

// volumeHost picks the host of a new volume: of those that can have it the one with
// most of the tenant's, then the one with the fewest of all.
func (c *Core) volumeHost(tenant string) (string, error) {
	theirs, all := make(map[string]int), make(map[string]int)
	for _, v := range c.view.Volumes(func(v *sandbox.Volume) bool { return !v.Deleted }) {
		all[v.Host]++
		if v.Tenant == tenant {
			theirs[v.Host]++
		}
	}
	hosts := c.view.Hosts()
	hosts = slices.DeleteFunc(hosts, func(h fleet.Host) bool {
		return !h.Alive(time.Now()) || h.Draining || len(h.VolumeDrivers) == 0
	})
	if len(hosts) == 0 {
		return "", kind.New(kind.Unavailable, "create volume", "", "no host can have volumes right now")
	}
	best := slices.MaxFunc(hosts, func(a, b fleet.Host) int {
		if d := theirs[a.Host] - theirs[b.Host]; d != 0 {
			return d
		}
		return all[b.Host] - all[a.Host]
	})
	return best.Host, nil
}

// Volume gives a volume by its id, not older than the call. NotFound also for
// another tenant's.
func (c *Core) Volume(ctx context.Context, p Principal, id sandbox.VolumeID) (sandbox.Volume, error) {
	if v, ok := c.view.Volume(id); ok && p.mayVolume(&v) {
		return v, nil
	}
	if err := c.Sync(ctx); err != nil {
		return sandbox.Volume{}, err
	}
	if v, ok := c.view.Volume(id); ok && p.mayVolume(&v) {
		return v, nil
	}
	return sandbox.Volume{}, noVolume(string(id))
}

func (p Principal) mayVolume(v *sandbox.Volume) bool {
	return p.Tenant == v.Tenant && p.Sandbox == "" && (p.Volume == "" || p.Volume == v.ID) && v.Made && !v.Deleted
}

// whole says Denied of who has a token for one thing.
func (p Principal) whole(op string) error {
	if p.Tenant == "" || p.Sandbox != "" || p.Volume != "" {
		return kind.New(kind.Denied, op, "", "an API key is required")
	}
	return nil
}

func noVolume(id string) error {
	return kind.Newf(kind.NotFound, "find volume", id, "volume '%s' not found", id)
}

// Volumes gives the principal's volumes by name, not older than the call.
func (c *Core) Volumes(ctx context.Context, p Principal) ([]sandbox.Volume, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	return c.view.Volumes(p.mayVolume), nil
}

// DeleteVolume ends a volume; its host removes the files. Conflict while a sandbox
// uses it, NotFound if there is none.
func (c *Core) DeleteVolume(ctx context.Context, p Principal, id sandbox.VolumeID) error {
	if err := p.whole("delete volume"); err != nil {
		return err
	}
	if err := c.Sync(ctx); err != nil {
		return err
	}
	v, err := c.Volume(ctx, p, id)
	if err != nil {
		return err
	}
	uses := func(s *sandbox.State) bool {
		return !s.Over() && slices.ContainsFunc(s.Request.Volumes, func(m sandbox.Mount) bool { return m.Volume == id })
	}
	if users := c.view.Sandboxes(uses); len(users) > 0 {
		return kind.Newf(kind.Conflict, "delete volume", string(id), "sandbox %s uses the volume", users[0].ID)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	v.Deleted = true
	if err := c.log.PutVolume(ctx, &v); err != nil {
		if kind.Is(err, kind.Conflict) { // somebody else deleted it
			err = noVolume(string(id))
		}
		return logError("delete volume", string(id), err)
	}
	return c.Sync(ctx)
}

// Mounts finds the volumes that a new sandbox is to see, by name, and the host that
// has them, which is empty if there are none. NotFound for one that is not there,
// Invalid if they are on several hosts.
func (c *Core) Mounts(ctx context.Context, p Principal, mounts []sandbox.Mount) ([]sandbox.Mount, string, error) {
	if err := sandbox.CheckMounts(mounts); err != nil || len(mounts) == 0 {
		return nil, "", err
	}
	if err := c.Sync(ctx); err != nil {
		return nil, "", err
	}
	host := ""
	for i, m := range mounts {
		v, ok := c.view.NamedVolume(p.Tenant, m.Name)
		switch {
		case !ok || !p.mayVolume(&v):
			return nil, "", noVolume(m.Name)
		case host != "" && host != v.Host:
			return nil, "", kind.Newf(kind.Invalid, "mount volumes", "", "volume '%s' is on another host than '%s'", m.Name, mounts[0].Name)
		}
		host, mounts[i].Volume = v.Host, v.ID
	}
	return sandbox.ByDepth(mounts), host, nil
}

// AskVolume puts a question about the files of a volume, whose paths begin at its
// root. Errors: those of file.Request.Check, NotFound, Unavailable while its host is
// away; what the host answers comes from the methods of Files.
func (c *Core) AskVolume(ctx context.Context, p Principal, id sandbox.VolumeID, req *file.Request) (*Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	v, err := c.Volume(ctx, p, id)
	if err != nil {
		return nil, err
	}
	st := sandbox.State{Host: v.Host}
	if err := c.alive(&st); err != nil {
		return nil, kind.New(kind.Unavailable, "reach volume", string(id), "the volume's host does not answer, try again")
	}
	opening, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	host, _ := c.view.Host(v.Host)
	s, err := c.tunnels.Open(opening, v.Host, host.Epoch, string(id)+":"+targetVolume)
	if kind.Is(err, kind.Deadline) {
		err = kind.New(kind.Unavailable, "reach volume", string(id), "the volume's host does not answer, try again")
	}
	if err != nil {
		return nil, err
	}
	return AskOver(ctx, s, req)
}

// VolumeToken is a volume's access token, made as a sandbox's is: whoever bears it
// may use that volume's files.
func (c *Core) VolumeToken(id sandbox.VolumeID) string {
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte("volume")) //nolint:errcheck // a hash never fails
	mac.Write([]byte(id))       //nolint:errcheck // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// VolumeBearer gives who asks with a volume's token. Unauthenticated for a wrong
// one, whether or not there is such a volume; NotFound for a right one of a volume
// that is gone.
func (c *Core) VolumeBearer(ctx context.Context, id sandbox.VolumeID, token string) (Principal, error) {
	if !hmac.Equal([]byte(token), []byte(c.VolumeToken(id))) {
		return Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "wrong volume token")
	}
	v, ok := c.view.Volume(id)
	if !ok {
		if err := c.Sync(ctx); err != nil {
			return Principal{}, err
		}
		if v, ok = c.view.Volume(id); !ok {
			return Principal{}, noVolume(string(id))
		}
	}
	return Principal{Tenant: v.Tenant, Volume: id}, nil
}
