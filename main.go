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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; a second one ends at once.
	context.AfterFunc(ctx, stop)
	// A closed terminal asks for an orderly end too, often twice: shell and kernel send SIGHUP. nohup ignores it.
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	ballast := command.Ballast()
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
