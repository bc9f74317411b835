package handler

import (
	"strings"
	"time"

	"seckill/model"
)

// Paging is the query parameters of every list. A parameter that is repeated
// counts the first time.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"The most items of a page."`
}

// InPath is the id in a path. (Exported like the other parts of inputs, because
// huma does not look into embedded structs that are not.) It has no rules
// here: possible has refused one that cannot exist.
type InPath struct {
	ID string `path:"id"`
}

// maxWait is the longest a client may wait for an order, because proxies cut
// connections that are silent for a minute.
const maxWait = 30 * time.Second

// parseWait reads how long to wait. More than the most is the most: a client
// that is patient does nothing wrong.
func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 {
		return 0, model.Invalid("query.wait", "must be a duration like 10s, and not negative")
	}
	return min(wait, maxWait), nil
}

// parseTime reads an RFC 3339 time. Microseconds and these years are what
// databases hold (MySQL 8 manual, 13.2.2, "The DATETIME type").
func parseTime(location, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strictTime(text) {
		return time.Time{}, model.Invalid(location, "must be an RFC 3339 time like 2030-11-11T20:00:00+08:00")
	}
	at = at.UTC().Truncate(time.Microsecond)
	if at.Year() < 1000 || at.Year() > 9999 {
		return time.Time{}, model.Invalid(location, "must be in the years 1000 to 9999")
	}
	return at, nil
}

// strictTime refuses what time.Parse lets pass beyond RFC 3339: hours of one
// digit, a comma before the fraction, and offsets of 24 hours or 60 minutes
// (https://go.dev/issue/54580).
func strictTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return false
	}
	offset := text[len(text)-len("+15:04"):]
	return strings.HasSuffix(text, "Z") || offset[1:3] < "24" && offset[4:] < "60"
}

// orderPage makes an empty page an empty list, not null.
func orderPage(page model.OrderPage) *output[model.OrderPage] {
	if page.Items == nil {
		page.Items = []model.Order{}
	}
	return &output[model.OrderPage]{Body: page}
}

// voucherPage makes an empty page an empty list, not null.
func voucherPage(page model.VoucherPage) *output[model.VoucherPage] {
	if page.Items == nil {
		page.Items = []model.Voucher{}
	}
	return &output[model.VoucherPage]{Body: page}
}
