package lock

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// keyName puts a prefix before a lock's name so that both are in the same slot
// of a Cluster, exactly as Redisson does: a name that has a brace already
// brings its own hash tag.
func keyName(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// latchID makes the 32 hexadecimal digits that end a latch's name: half of the
// holder's uuid and its integer, which are used once.
func latchID(holder string) string {
	uuid, integer, ok := strings.Cut(holder, ":")
	n, err := strconv.ParseUint(integer, 10, 64)
	if !ok || err != nil || len(uuid) != 36 {
		sum := sha256.Sum256([]byte(holder))
		return hex.EncodeToString(sum[:16])
	}
	const digits = "0123456789abcdef"
	var b [32]byte
	i := 0
	for j := 0; i < 16; j++ {
		if uuid[j] != '-' {
			b[i] = uuid[j]
			i++
		}
	}
	for i = 31; i >= 16; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
	return string(b[:])
}

// millis writes a duration as Redis' expiries want it; never less than one.
func millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// pair reads a reply of two integers.
func pair(v any) (code, n int64, err error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, unexpected(v)
	}
	code, ok = list[0].(int64)
	n, ok2 := list[1].(int64)
	if !ok || !ok2 {
		return 0, 0, unexpected(v)
	}
	return code, n, nil
}
