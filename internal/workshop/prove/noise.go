package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

const (
	burners = 4
	// The disk writer writes this much again and again, and waits for the disk each time.
	written = 32 << 20
)

// noise keeps a machine busy until it is interrupted: busy loops, and a process that writes to the disk. Beside it the
// tests take longer, and their verdict stays the same.
func noise(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "seckill-noise-")
	if err != nil {
		return fmt.Errorf("make a directory to write in: %w", err)
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%d busy loops and a disk writer, until they are interrupted\n", burners)
	runtime.GOMAXPROCS(burners + 1) // each loop has a thread of its own, however few processors there are
	var all sync.WaitGroup
	for range burners {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
			}
		})
	}
	err = writeOnAndOn(ctx, filepath.Join(dir, "noise"))
	all.Wait()
	return err
}

func writeOnAndOn(ctx context.Context, path string) error {
	block := make([]byte, written)
	for ctx.Err() == nil {
		file, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		_, err = file.Write(block)
		if err == nil {
			err = file.Sync()
		}
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
