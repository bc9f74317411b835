// Command seckill is a flash-sale backend; see README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"seckill/internal/command"
)

// ballastSize is how many bytes the process allocates between two collections of garbage at the least. An order leaves
// some 10 KiB behind while a few MiB are alive: with Go's default, which lets the heap double, garbage would be collected
// some ten times a second in a rush, for a tenth of the processor. Unlike a larger GOGC this adds the same memory to a
// large heap as to a small one. It counts as alive and is never touched: the kernel gives it no page.
const ballastSize = 64 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends at once.
	context.AfterFunc(ctx, stop)
	// A closed terminal asks for an orderly end too, often twice: shell and kernel send SIGHUP. nohup ignores it.
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	var ballast []byte
	if os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" { //nolint:forbidigo // settings of the runtime, not of the service
		ballast = make([]byte, ballastSize)
	}
	code := command.Run(ctx, command.Process{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	stop()
	runtime.KeepAlive(ballast)
	os.Exit(code)
}
