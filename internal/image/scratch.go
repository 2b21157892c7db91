package image

import (
	"io"
	"syscall"

	"github.com/millrace/millrace/events/kind"
)

const (
	leastFree         = 1 << 30  // bytes to keep free on the scratch disk; at most a twentieth of the disk
	diskCheckInterval = 16 << 20 // bytes of a layer between two checks of the disk
)

// limitedLayer is a layer that is written to a scratch directory while it is read. It returns
// Exhausted when too little disk space would remain free.
type limitedLayer struct {
	io.ReadCloser
	scratch string
	least   int64 // bytes to keep free
	left    int   // bytes until the next check
}

// limitDisk makes the image's layers, which are cached in scratch, check the free disk
// space while they are read.
func (img *Image) limitDisk(scratch string) {
	_, total := diskFree(scratch)
	for i := range img.Layers {
		open := img.Layers[i].Open
		img.Layers[i].Open = func() (io.ReadCloser, error) {
			layer, err := open()
			return &limitedLayer{ReadCloser: layer, scratch: scratch, least: min(leastFree, total/20)}, err
		}
	}
}

func (r *limitedLayer) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if free, _ := diskFree(r.scratch); free < r.least {
			return 0, kind.New(kind.Exhausted, "pull", "", "the disk has too little free space for the image's layers")
		}
		r.left = diskCheckInterval
	}
	n, err := r.ReadCloser.Read(p)
	r.left -= n
	return n, err
}

// memory returns the free and the total bytes of a directory's disk; if they are unknown,
// there is enough.
func diskFree(dir string) (free, total int64) {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return leastFree, leastFree
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}
