package repository

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

// errCopyReply marks a reply that no script of ours gives.
var errCopyReply = errors.New("unexpected reply")

// unsent reports whether an error of a call that is sent once proves that
// nothing of it reached Redis.
func unsent(err error) bool {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// redisRefusals begin the errors with which a Redis in trouble refuses a call
// before anything is done, see https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors.
// (A script's first refused write is before everything else it does.)
func redisRefusals() []string {
	return []string{
		"OOM", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN", "BUSY",
		"NOAUTH", "WRONGPASS", "NOPERM", "The user executing the script", // which lacks a permission
		"MOVED", "ASK", "UNBLOCKED", "max number of clients",
	}
}

// refused reports whether Redis itself answered that it cannot work now.
func refused(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	for _, prefix := range redisRefusals() {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// otherKind reports whether something else lies under the name of a key of ours.
// (An older Redis puts where it happened before the word.)
func otherKind(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	return ok && strings.Contains(answer.Error(), "WRONGTYPE")
}

// fail gives the domain's name to what went wrong with a call, and says what
// was being done. It is nil when nothing went wrong.
func (c *copyCall) fail(action string) error {
	err := c.err
	if err == nil {
		return nil
	}
	switch {
	case refused(err):
		err = model.Unavailable("Redis cannot work now.", err)
	case otherKind(err) || errors.Is(err, errCopyReply):
		// A bug: a key that holds something else, a reply that no script gives. Any
		// other error that is not known says nothing about what was done.
	case c.script.reads || c.once && unsent(err):
		err = model.Unavailable("Redis does not answer.", err)
	default:
		err = unknownCopy(err)
	}
	return fmt.Errorf("%s of voucher %s: %w", action, c.voucher, err)
}

// unknownCopy names the outcome of a call that was sent and not answered.
func unknownCopy(err error) error {
	return model.Unavailable("Redis did not answer; whether anything was changed is not known yet.",
		fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err))
}

// closed is fail, and ErrCopyClosed when the script found the copy closed.
func (c *copyCall) closed(action string) error { return c.done(action, model.ErrCopyClosed) }

// done is fail, and the error given when the script did not do what it is for.
func (c *copyCall) done(action string, otherwise error) error {
	if c.err == nil && c.verdict != copyDone {
		return fmt.Errorf("%s of voucher %s: %w", action, c.voucher, otherwise)
	}
	return c.fail(action)
}
