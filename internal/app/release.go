package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	releaseInterval = time.Second // between two samples of the memory

	quietBytes   = 2 << 20  // a program that allocates less between two samples is quiet
	quietSamples = 30       // samples after which a quiet program returns memory: the streams in memory have dropped tunnels by then,
	mostHeld     = 32 << 20 // if it holds more than this in addition to what it had to keep last time,
	pauseSamples = 45       // and at most once in so many samples: with much live memory a collection delays commands

	startSamples = 30 // in so many samples after its start
	startQuiet   = 3  // so few are enough: what it read of its streams is garbage then
)

// returnMemory returns memory to the system when the program is quiet after a load, until ctx
// ends. The runtime does not: with little allocated, the next collection is up to two minutes
// away, and it returns a part of the free memory then. After nine reads of a record of 214 MB,
// 550 MiB remained for as long. It calls started once after the program has started.
func returnMemory(ctx context.Context, started func()) {
	started = sync.OnceFunc(started)
	look := time.NewTicker(releaseInterval)
	defer look.Stop()
	r := releaser{floor: readMemory().held, starting: startSamples}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if r.due(readMemory()) {
			freeMemory()
			r.freed(readMemory())
		}
		if r.starting == 0 {
			started()
		}
	}
}

// freeMemory returns to the system what is not used.
func freeMemory() {
	runtime.GC() // pools keep their content for one collection
	debug.FreeOSMemory()
}

// memory is a sample of the program's memory, in bytes.
type memory struct {
	held      uint64 // now, without what was returned to the system
	allocated uint64 // since the program started
}

func readMemory() memory {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return memory{held: s[0].Value.Uint64() - s[1].Value.Uint64(), allocated: s[2].Value.Uint64()}
}

// releaser decides when memory is returned.
type releaser struct {
	floor     uint64 // the least that was held since memory was returned
	allocated uint64 // at the last sample
	quiet     int    // consecutive samples at which the program was quiet
	pause     int    // samples until memory may be returned again
	starting  int    // samples until the program has started
}

// due reports whether memory is to be returned.
func (r *releaser) due(m memory) bool {
	if r.quiet++; m.allocated-r.allocated >= quietBytes {
		r.quiet = 0
	}
	need := quietSamples
	if r.starting > 0 {
		r.starting--
		need = startQuiet
	}
	r.allocated, r.floor, r.pause = m.allocated, min(r.floor, m.held), max(r.pause-1, 0)
	return r.pause == 0 && r.quiet >= need && m.held > r.floor+mostHeld
}

// freed records what was held after memory was returned.
func (r *releaser) freed(m memory) {
	*r = releaser{floor: m.held, allocated: m.allocated, pause: pauseSamples}
}
