package image

import (
	"io"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

const (
	leastFree  = 1 << 30  // bytes to keep free on the scratch disk; at most a twentieth of the disk
	roomChecks = 16 << 20 // bytes of a layer between two checks of the disk
)

// roomy is a layer that is written to a scratch directory while it is read. It returns
// Exhausted when too little disk space would remain free.
type roomy struct {
	io.ReadCloser
	scratch string
	least   int64 // bytes to keep free
	left    int   // bytes until the next check
}

// leaveRoom makes the image's layers, which are cached in scratch, check the free disk
// space while they are read.
func (img *Image) leaveRoom(scratch string) {
	_, total := room(scratch)
	for i := range img.Layers {
		open := img.Layers[i].Open
		img.Layers[i].Open = func() (io.ReadCloser, error) {
			layer, err := open()
			return &roomy{ReadCloser: layer, scratch: scratch, least: min(leastFree, total/20)}, err
		}
	}
}

func (r *roomy) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if free, _ := room(r.scratch); free < r.least {
			return 0, kind.New(kind.Exhausted, "pull", "", "the disk has too little free space for the image's layers")
		}
		r.left = roomChecks
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= n
	return n, err
}

// room returns the free and the total bytes of a directory's disk; if they are unknown,
// there is enough.
func room(dir string) (free, total int64) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return leastFree, leastFree
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize) //nolint:unconvert,gosec // their types differ between systems
}
