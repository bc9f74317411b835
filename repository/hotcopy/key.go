package hotcopy

import "strconv"

// prefix begins the names of a voucher's keys: the version of their layout, and the voucher
// as hash tag, so that they share a slot of a Cluster.
func prefix(voucherID string) string { return "seckill:v1:{" + voucherID + "}:" }

func headKey(voucherID string) string { return prefix(voucherID) + "head" }

func buyersKey(voucherID string, epoch int64) string { return epochKey(voucherID, epoch, "buyers") }

func pendingKey(voucherID string, epoch int64) string { return epochKey(voucherID, epoch, "pending") }

func dueKey(voucherID string, epoch int64) string { return epochKey(voucherID, epoch, "due") }

func epochKey(voucherID string, epoch int64, noun string) string {
	return prefix(voucherID) + strconv.FormatInt(epoch, 10) + ":" + noun
}

// epochKeys are the keys of one epoch, in the order of head.lua.
func epochKeys(voucherID string, epoch int64) []string {
	return []string{
		buyersKey(voucherID, epoch), pendingKey(voucherID, epoch),
		dueKey(voucherID, epoch), epochKey(voucherID, epoch, "closed"),
	}
}

// oldPart stands for a voucher in the keys of part n, from 1, of a copy that was made when a
// copy could lie in several parts. No voucher has such an id.
func oldPart(voucherID string, n int) string { return voucherID + "#" + strconv.Itoa(n) }
