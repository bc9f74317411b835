package service

import "seckill/model"

// vouchersOf lists the vouchers of reservations, each once.
func vouchersOf(reservations []model.Reservation) []string {
	var ids []string
	seen := map[string]bool{}
	for _, r := range reservations {
		if !seen[r.VoucherID] {
			seen[r.VoucherID] = true
			ids = append(ids, r.VoucherID)
		}
	}
	return ids
}
