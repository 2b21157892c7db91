package files

import (
	"context"
	"encoding/json"
	"time"
)

// Listing is the description of a directory.
type Listing struct {
	Files  string `json:"files"` // JSON of a list of items
	Folder string `json:"folder_path"`
	Abs    string `json:"abspath"`
	Errors string `json:"errors"`
}

// item is a file in a listing; times are in seconds.
type item struct {
	Mode     string  `json:"mode"`
	Size     int64   `json:"size"`
	Changed  float64 `json:"ctime"`
	Modified float64 `json:"mtime"`
	Accessed float64 `json:"atime"`
	Filename string  `json:"filename"`
}

// List returns the description of a directory.
func List(ctx context.Context, from Store, name string) (Listing, error) {
	if name == "" {
		name = "."
	}
	name, err := Check(name)
	if err != nil {
		return Listing{}, err
	}
	abs, all, err := from.List(ctx, name)
	if err != nil {
		return Listing{}, err
	}
	items := make([]item, len(all))
	for i, e := range all {
		items[i] = item{e.Permissions, e.Size, seconds(e.Changed, e.Modified), seconds(e.Modified), seconds(e.Accessed, e.Modified), e.Name}
	}
	raw, err := json.Marshal(items)
	return Listing{Files: string(raw), Folder: name, Abs: abs}, err
}

// seconds returns the first of the times that is known.
func seconds(of ...time.Time) float64 {
	for _, t := range of {
		if !t.IsZero() {
			return float64(t.UnixMilli()) / 1000
		}
	}
	return 0
}
