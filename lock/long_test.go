package lock_test

import (
	"os"
	"time"
)

// The environment variable LOCK_TEST_LONG makes the randomised tests run for
// minutes rather than seconds.
func long() bool { return os.Getenv("LOCK_TEST_LONG") != "" }

func duration(short, extended time.Duration) time.Duration {
	if long() {
		return extended
	}
	return short
}
