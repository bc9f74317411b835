package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// cpu is CPU time used so far. Per acquisition it says more than the rate on a machine that does other things too.
type cpu struct{ client, server time.Duration }

func measureCPU(ctx context.Context, server *redis.Client) (cpu, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return cpu{}, fmt.Errorf("measure CPU time: %w", err)
	}
	text, err := server.Info(ctx, "cpu").Result()
	if err != nil {
		return cpu{}, fmt.Errorf("measure the CPU time of Redis: %w", err)
	}
	sum := cpu{client: time.Duration(used.Utime.Nano() + used.Stime.Nano())}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return cpu{}, fmt.Errorf("measure the CPU time of Redis: %w", err)
		}
		sum.server += time.Duration(seconds * float64(time.Second))
	}
	return sum, nil
}
