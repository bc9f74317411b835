package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// wrongFields are the places of a VALIDATION error, in its order.
func wrongFields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || refusal.Code != model.CodeValidation {
		t.Fatalf("%v is no VALIDATION error", err)
	}
	var places []string
	for _, field := range refusal.Fields {
		places = append(places, field.Location)
	}
	return places
}

func TestNewVoucherIsChecked(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		spoil func(*model.VoucherFields)
		wrong []string
	}{
		"good": {func(*model.VoucherFields) {}, nil},
		"longest texts": {func(v *model.VoucherFields) {
			v.Title, v.Description = strings.Repeat("茶", 200), strings.Repeat("茶", 4000)
		}, nil},
		"blank title":        {func(v *model.VoucherFields) { v.Title = " \u3000" }, []string{"body.title"}},
		"long title":         {func(v *model.VoucherFields) { v.Title = strings.Repeat("茶", 201) }, []string{"body.title"}},
		"title of two lines": {func(v *model.VoucherFields) { v.Title = "a\nb" }, []string{"body.title"}},
		"long description":   {func(v *model.VoucherFields) { v.Description = strings.Repeat("茶", 4001) }, []string{"body.description"}},
		"lines and tabs":     {func(v *model.VoucherFields) { v.Description = "a\r\n\tb" }, nil},
		"control characters": {func(v *model.VoucherFields) { v.Description = "\x1b[31m" }, []string{"body.description"}},
		"the largest amounts": {func(v *model.VoucherFields) {
			v.Price, v.FaceValue, v.Stock = model.MaxAmount, model.MaxAmount, model.MaxAmount
		}, nil},
		"no amounts":        {func(v *model.VoucherFields) { v.Price, v.FaceValue, v.Stock = 0, 0, 0 }, nil},
		"negative price":    {func(v *model.VoucherFields) { v.Price = -1 }, []string{"body.price"}},
		"negative stock":    {func(v *model.VoucherFields) { v.Stock = -1 }, []string{"body.stock"}},
		"ends as it begins": {func(v *model.VoucherFields) { v.EndAt = v.BeginAt }, []string{"body.end_at"}},
		"no times":          {func(v *model.VoucherFields) { v.BeginAt, v.EndAt = time.Time{}, time.Time{} }, []string{"body.end_at"}},
		"everything at once": {
			func(v *model.VoucherFields) {
				*v = model.VoucherFields{
					Description: "\x00", Price: -1, FaceValue: model.MaxAmount + 1, Stock: model.MaxAmount + 1, BeginAt: v.EndAt, EndAt: v.BeginAt,
				}
			},
			[]string{"body.title", "body.description", "body.price", "body.face_value", "body.end_at", "body.stock"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := model.VoucherFields{Title: "Tea", Price: 1, FaceValue: 2, Stock: 3, BeginAt: begin, EndAt: begin.Add(time.Hour)}
			test.spoil(&v)
			if wrong := wrongFields(t, v.Check()); !slices.Equal(wrong, test.wrong) {
				t.Errorf("wrong are %v, want %v", wrong, test.wrong)
			}
		})
	}
}

// What a patch does not say is not checked: the voucher's row has it.
func TestPatchIsCheckedForWhatItSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch model.VoucherPatch
		wrong []string
	}{
		"nothing":    {model.VoucherPatch{}, nil},
		"one end":    {model.VoucherPatch{EndAt: new(time.Time{})}, nil},
		"both ends":  {model.VoucherPatch{BeginAt: new(time.Now()), EndAt: new(time.Time{})}, []string{"body.end_at"}},
		"no title":   {model.VoucherPatch{Title: new("")}, []string{"body.title"}},
		"no text":    {model.VoucherPatch{Description: new("")}, nil},
		"face value": {model.VoucherPatch{FaceValue: new(int64(-1))}, []string{"body.face_value"}},
	} {
		if wrong := wrongFields(t, test.patch.Check()); !slices.Equal(wrong, test.wrong) {
			t.Errorf("%s: wrong are %v, want %v", name, wrong, test.wrong)
		}
	}
}

func TestStockChangeIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change model.StockChange
		wrong  []string
	}{
		"neither":         {model.StockChange{}, []string{"body"}},
		"both":            {model.StockChange{Delta: new(int64), Stock: new(int64)}, []string{"body"}},
		"least delta":     {model.StockChange{Delta: new(int64(-model.MaxAmount))}, nil},
		"less than that":  {model.StockChange{Delta: new(int64(-model.MaxAmount - 1))}, []string{"body.delta"}},
		"too much delta":  {model.StockChange{Delta: new(int64(model.MaxAmount + 1))}, []string{"body.delta"}},
		"greatest stock":  {model.StockChange{Stock: new(int64(model.MaxAmount))}, nil},
		"more than that":  {model.StockChange{Stock: new(int64(model.MaxAmount + 1))}, []string{"body.stock"}},
		"negative stock":  {model.StockChange{Stock: new(int64(-1))}, []string{"body.stock"}},
		"nothing on sale": {model.StockChange{Stock: new(int64)}, nil},
	} {
		if wrong := wrongFields(t, test.change.Check()); !slices.Equal(wrong, test.wrong) {
			t.Errorf("%s: wrong are %v, want %v", name, wrong, test.wrong)
		}
	}
}
