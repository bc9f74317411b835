package handler

import (
	"time"

	"seckill/model"
)

// parse makes the draft a NewVoucher. Its error names every field that is wrong.
func (d VoucherDraft) parse() (model.NewVoucher, error) {
	patch, err := VoucherChange{Title: &d.Title, Description: &d.Description, BeginAt: &d.BeginAt, EndAt: &d.EndAt}.parse()
	if err != nil {
		return model.NewVoucher{}, err
	}
	return model.NewVoucher{
		Title: d.Title, Description: d.Description, Price: d.Price, FaceValue: d.FaceValue, Stock: d.Stock,
		BeginAt: *patch.BeginAt, EndAt: *patch.EndAt, State: model.VoucherState(d.State),
	}, nil
}

// parse makes the change a VoucherPatch. Its error names every field that is wrong.
func (c VoucherChange) parse() (model.VoucherPatch, error) {
	begin, beginErr := parseOptionalTime("body.begin_at", c.BeginAt)
	end, endErr := parseOptionalTime("body.end_at", c.EndAt)
	patch := model.VoucherPatch{
		Title: c.Title, Description: c.Description, Price: c.Price, FaceValue: c.FaceValue,
		BeginAt: begin, EndAt: end, State: (*model.VoucherState)(c.State),
	}
	return patch, model.JoinInvalid(patch.Check(), beginErr, endErr)
}

// parseOptionalTime is nil for a time that is absent or cannot be read.
func parseOptionalTime(location string, text *string) (*time.Time, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // absent is what it is
	}
	at, err := parseTime(location, *text)
	if err != nil {
		return nil, err
	}
	return &at, nil
}
