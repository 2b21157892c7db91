package driver_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
)

// An instance outlives the run of hostd that created it: the next run finds it by its
// directory.
func Example() {
	if err := restart(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: 1 sandbox destroyed
}

func restart(ctx context.Context) error {
	root, err := os.MkdirTemp("", "sandboxes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	id := sandbox.NewID()
	spec := driver.Spec{ID: id, Dir: filepath.Join(root, string(id)), ShimPath: "/bin/sh", ShimArgs: []string{"-c", "sleep 1000"}}
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return err
	}
	var d driver.Driver = direct.New(direct.Config{})
	if _, err := d.Create(ctx, spec); err != nil {
		return err
	}

	// The next run.
	d = direct.New(direct.Config{})
	ids, err := d.List(ctx, root)
	if err != nil {
		return err
	}
	instance, err := d.Attach(ctx, driver.Spec{ID: ids[0], Dir: filepath.Join(root, string(ids[0]))})
	if err != nil {
		return err
	}
	if err := instance.Destroy(ctx); err != nil {
		return err
	}
	<-instance.Done()
	fmt.Println(len(ids), "sandbox destroyed")
	return nil
}

func ExampleCaps_Abilities() {
	caps := driver.Caps{MemoryLimit: true, Pause: true}
	can, _ := caps.Abilities()
	fmt.Println(can)
	// Output: [limit memory pause]
}
