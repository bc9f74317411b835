package wire

import (
	"math"
	"strconv"
	"time"
)

// RetryAfter renders a wait in whole seconds (RFC 9110, 10.2.3). It rounds up, because a client that comes back early
// is refused again. It never says 0, with which a client would repeat the request without any wait.
func RetryAfter(wait time.Duration) string {
	seconds := int64(math.Ceil(wait.Seconds()))
	return strconv.FormatInt(max(seconds, 1), 10)
}
