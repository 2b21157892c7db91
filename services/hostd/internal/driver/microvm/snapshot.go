//go:build linux

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
)

// Files in a snapshot: the first two in one with the memory, the others in one
// without it.
const (
	memoryFile  = "memory"
	machineFile = "machine.json"
	writtenFile = "written.tar"
	originFile  = "origin.json"
)

// saved describes the machine that the memory of a snapshot requires.
type saved struct {
	Board     int    `json:"board"`
	Accel     string `json:"accel"`
	MemoryMiB uint32 `json:"memory_mib"`
	CPUs      uint32 `json:"cpus"`
	Image     string `json:"image"`
}

// checkpoint implements live.Instance.Checkpoint. It always saves the memory.
func (b *instance) checkpoint(ctx context.Context, dir string, memory bool) (err error) {
	if !memory {
		return b.saveFiles(ctx, dir)
	}
	if err := errors.Join(b.images.users().Add(filepath.Dir(dir)), keepMachine(filepath.Join(b.Dir, workDir), dir)); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, memoryFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	frozen, err := b.freezer.Frozen()
	if err != nil {
		return err
	}
	if !frozen {
		// ctx may have ended, but the machine must run again.
		defer b.freezer.Thaw(context.WithoutCancel(ctx)) //nolint:errcheck // Resume repeats it
	}
	q, err := openQMP(ctx, b.Dir)
	if err != nil {
		return err
	}
	defer q.close()
	if _, err := q.do("stop", nil); err != nil {
		return err
	}
	return q.migrate(ctx, f, true)
}

// save records the machine that the memory requires.
func (m *machine) save(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(saved{board, m.accel, m.memoryMiB, m.cpus, m.image})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, machineFile), b, 0o600)
}

// load reads the machine of a snapshot.
func (m *machine) load(dir string) error {
	s, err := readMachine(dir)
	if err != nil {
		return err
	}
	if s.Board != board {
		return kind.New(kind.Invalid, "load snapshot", "", "the snapshot was made by an incompatible version")
	}
	if s.Accel != m.accel {
		return kind.Newf(kind.Invalid, "load snapshot", "", "the snapshot was made with %s, this host uses %s", s.Accel, m.accel)
	}
	if _, err := os.Stat(s.Image); err != nil {
		return kind.Wrap(kind.NotFound, "load snapshot", "", err)
	}
	m.memoryMiB, m.cpus, m.image = s.MemoryMiB, s.CPUs, s.Image
	return nil
}

// readMachine reads what machine.save wrote.
func readMachine(dir string) (s saved, err error) {
	b, err := os.ReadFile(filepath.Join(dir, machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, kind.New(kind.NotFound, "find snapshot", "", "snapshot not found")
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// filesOrigin describes the sandbox that the files of a snapshot without memory come from.
type filesOrigin struct {
	Format int  `json:"format"` // 1
	Tree   bool `json:"tree"`   // whether it was created from a template's tree
}

const filesFormat = 1

// filesIn returns the file of what the guest wrote from a snapshot without memory, for a
// sandbox with a template's tree or without; empty if the snapshot has the memory.
func filesIn(from string, tree bool) (string, error) {
	if from == "" {
		return "", nil
	}
	b, err := os.ReadFile(filepath.Join(from, originFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var o filesOrigin
	if err := json.Unmarshal(b, &o); err != nil || o.Format != filesFormat {
		return "", kind.Newf(kind.Invalid, "load snapshot", "", "%s was not written by this driver: %q", originFile, b)
	}
	if o.Tree != tree {
		return "", kind.New(kind.Invalid, "load snapshot", "", "the snapshot was made from another template")
	}
	return filepath.Join(from, writtenFile), nil
}

// saveFiles fills dir with what the guest sends of its files. A paused guest runs for that
// moment.
func (b *instance) saveFiles(ctx context.Context, dir string) error {
	m, err := readMachine(filepath.Join(b.Dir, workDir))
	if err != nil {
		return err
	}
	frozen, err := b.freezer.Frozen()
	if err != nil {
		return err
	}
	if frozen {
		err = b.freezer.Thaw(ctx)
	}
	if err == nil {
		err = b.receiveFiles(ctx, filepath.Join(dir, writtenFile), m.MemoryMiB)
	}
	if frozen { // ctx may have ended, but the guest must be paused again
		err = errors.Join(err, b.freezer.Freeze(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	o, err := json.Marshal(filesOrigin{filesFormat, b.State.Tree})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, originFile), o, 0o600)
}

// receiveTime bounds how long a guest may take to send its files: less than hostd waits for a
// lost shim, and than a sandbox that starts with them has.
const receiveTime = 20 * time.Second

// receiveFiles writes what the guest sends to a file. The size is limited by the guest's memory.
func (b *instance) receiveFiles(ctx context.Context, path string, memoryMiB uint32) (err error) {
	release, err := b.acquirePort(ctx)
	if err != nil {
		return err
	}
	defer release()
	timed, cancel := context.WithTimeout(ctx, receiveTime)
	defer cancel()
	defer func() {
		if timed.Err() != nil && ctx.Err() == nil {
			err = kind.Newf(kind.Exhausted, "snapshot sandbox", string(b.State.ID), "the guest did not send its files within %v", receiveTime)
		}
	}()
	conn, err := b.redial(timed)
	if err != nil {
		return err
	}
	guest, err := fifolink.DialAside(timed, conn)
	if err != nil {
		return err
	}
	defer guest.Close()
	defer context.AfterFunc(timed, func() { conn.Close() })()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(ctx.Err(), err, f.Close()) }()
	most := 2 * int64(memoryMiB) << 20
	n, err := io.Copy(f, io.LimitReader(guest, most))
	if err == nil && n == most {
		err = errors.New("the guest sends more files than fit in its memory")
	}
	return err
}
