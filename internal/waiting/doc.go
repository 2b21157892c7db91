// Package waiting has what services do while they wait: they sleep until a context ends,
// retry after growing delays, and wake each other.
//
//	for try := 0; ; try++ {
//		if err := do(ctx); err == nil || !waiting.Sleep(ctx, waiting.Delay(try, time.Second, time.Minute)) {
//			return err
//		}
//	}
package waiting
