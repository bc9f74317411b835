package handler

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"seckill/model"
)

// maxFieldErrors bounds the errors of one answer: a client mends no more than
// these at a time, and an answer must not be much larger than its request.
const maxFieldErrors = 20

// translate turns huma's own error documents into ours. As a transformer it
// belongs to one API; replacing huma.NewError would change every API of the
// process, and the type it returns cannot name a missing field.
func (a *api) translate(ctx huma.Context, _ string, body any) (any, error) {
	theirs, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	return a.refusal(ctx.Context(), theirs), nil
}

func (a *api) refusal(ctx context.Context, theirs *huma.ErrorModel) *Problem {
	switch theirs.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		p := problemOf(&model.Error{
			Code:   model.CodeValidation,
			Detail: "The request is not valid.",
			Fields: fieldErrors(theirs),
		})
		p.Status = theirs.Status // 400 where JSON does not parse
		return p
	default:
		return a.fail(ctx, theirs)
	}
}

// fieldErrors lists what is wrong, sorted: huma walks through maps.
func fieldErrors(theirs *huma.ErrorModel) []model.FieldError {
	fields := make([]model.FieldError, 0, len(theirs.Errors))
	for _, detail := range theirs.Errors {
		if detail != nil {
			fields = append(fields, fieldError(detail))
		}
	}
	if len(fields) == 0 {
		fields = append(fields, model.FieldError{Location: "body", Message: theirs.Detail})
	}
	slices.SortFunc(fields, func(a, b model.FieldError) int {
		if order := strings.Compare(a.Location, b.Location); order != 0 {
			return order
		}
		return strings.Compare(a.Message, b.Message)
	})
	return fields[:min(len(fields), maxFieldErrors)]
}

// fieldError takes over place and words, but never the value: it may be a
// password.
func fieldError(detail *huma.ErrorDetail) model.FieldError {
	field := model.FieldError{Location: detail.Location, Message: detail.Message}
	switch detail.Value.(type) {
	case nullValue:
		field.Message = "must not be null"
		return field
	case repeatedMember:
		field.Message = "is given more than once"
		return field
	}
	// huma blames the object for a member it lacks; people look for the member.
	if rest, ok := strings.CutPrefix(field.Message, "expected required property "); ok {
		if name, ok := strings.CutSuffix(rest, " to be present"); ok {
			field.Location += "." + name
			field.Message = "is required"
		}
	}
	return field
}
