package repository

import (
	"context"
	"strings"
)

// settledChannel carries ids of orders that are not pending any more, with
// spaces between them.
const settledChannel = "seckill:v1:settled-orders"

// Watch calls settled for orders that were settled or released by any
// instance, and missed whenever the subscription was made anew, because
// messages may have been lost before. It returns when ctx ends; a lost
// connection is made again by the client.
func (h *HotCopies) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error {
	return watch(ctx, h.client, settledChannel, func(ids string) { settled(strings.Split(ids, " ")) }, missed)
}
