package handler

import (
	"errors"
	"strings"
	"time"
	"unicode"

	"seckill/model"
)

// parse checks what a schema cannot say and makes the draft a NewVoucher.
func (d VoucherDraft) parse() (model.NewVoucher, error) {
	state := d.State
	begin, beginErr := parseTime("body.begin_at", d.BeginAt)
	end, endErr := parseTime("body.end_at", d.EndAt)
	err := join(checkTitle(&d.Title), checkDescription(&d.Description),
		beginErr, endErr, inOrder(&begin, &end, beginErr == nil && endErr == nil))
	return model.NewVoucher{
		Title:       d.Title,
		Description: d.Description,
		Price:       d.Price,
		FaceValue:   d.FaceValue,
		Stock:       d.Stock,
		BeginAt:     begin,
		EndAt:       end,
		State:       model.VoucherState(state),
	}, err
}

// parse is parse of VoucherDraft for the members that are there.
func (c VoucherChange) parse() (model.VoucherPatch, error) {
	begin, beginErr := parseOptionalTime("body.begin_at", c.BeginAt)
	end, endErr := parseOptionalTime("body.end_at", c.EndAt)
	err := join(checkTitle(c.Title), checkDescription(c.Description),
		beginErr, endErr, inOrder(begin, end, beginErr == nil && endErr == nil))
	return model.VoucherPatch{
		Title:       c.Title,
		Description: c.Description,
		Price:       c.Price,
		FaceValue:   c.FaceValue,
		BeginAt:     begin,
		EndAt:       end,
		State:       (*model.VoucherState)(c.State),
	}, err
}

func parseOptionalTime(location string, text *string) (*time.Time, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // absent is what it is
	}
	at, err := parseTime(location, *text)
	return &at, err
}

func checkTitle(text *string) error {
	switch {
	case text == nil:
		return nil
	case strings.TrimSpace(*text) == "":
		return model.Invalid("body.title", "must not be blank")
	case strings.ContainsFunc(*text, unicode.IsControl):
		return model.Invalid("body.title", "must not have control characters")
	}
	return nil
}

// checkDescription lets a text have lines and tabs.
func checkDescription(text *string) error {
	forbidden := func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' }
	if text != nil && strings.ContainsFunc(*text, forbidden) {
		return model.Invalid("body.description", "must not have control characters other than tabs and line breaks")
	}
	return nil
}

// inOrder compares two times that both are there and could be read.
func inOrder(begin, end *time.Time, read bool) error {
	if !read || begin == nil || end == nil || begin.Before(*end) {
		return nil
	}
	return model.Invalid("body.end_at", "must be after begin_at")
}

// join makes one error of the field errors given, nil of none.
func join(errs ...error) error {
	var all *model.Error
	for _, err := range errs {
		one, ok := errors.AsType[*model.Error](err)
		switch {
		case !ok:
		case all == nil:
			all = one
		default:
			all.Fields = append(all.Fields, one.Fields...)
		}
	}
	if all == nil {
		return nil
	}
	return all
}
