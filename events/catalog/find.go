package catalog

import "context"

// Find returns what get finds in a view. If that is nothing, it asks again when the view has
// everything that was stored before the call: the service that sent a request may have seen
// more than this view, which reads each stream at its own pace. Its error is that of Sync.
func Find[T any](ctx context.Context, v *View, get func() (T, bool)) (T, bool, error) {
	found, ok := get()
	if ok {
		return found, true, nil
	}
	if err := v.Sync(ctx); err != nil {
		return found, false, err
	}
	found, ok = get()
	return found, ok, nil
}
