package hotcopy

import "strconv"

// prefix begins the names of a voucher's keys: the version of their layout, and the voucher
// as hash tag, so that they share a slot of a Cluster.
func prefix(voucherID string) string { return "seckill:v1:{" + voucherID + "}:" }

func headKey(voucherID string) string { return prefix(voucherID) + "head" }

func buyersKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[0] }

func pendingKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[1] }

func dueKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[2] }

func closedKey(voucherID string, epoch int64) string { return epochKeys(voucherID, epoch)[3] }

// epochKeys are the keys of one epoch, in the order of head.lua.
func epochKeys(voucherID string, epoch int64) []string {
	these := prefix(voucherID) + strconv.FormatInt(epoch, 10) + ":"
	return []string{these + "buyers", these + "pending", these + "due", these + "closed"}
}
