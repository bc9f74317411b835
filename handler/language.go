package handler

import (
	"context"

	"seckill/handler/wire"
	"seckill/internal/words"
	"seckill/model"
)

// speak translates a problem into the language that the request's Accept-Language asks for.
func (a *api) speak(ctx context.Context, p *Problem) *Problem {
	if p.language == nil {
		p.in(a.words.Asked(callOf(ctx).accepts))
	}
	return p
}

// in translates the texts of a problem. A text that the catalogue lacks is replaced by the
// general meaning of the problem's code, so that one problem never mixes two languages.
func (p *Problem) in(language *words.Language) {
	p.language = language
	if language.Tag == words.English {
		return
	}
	detail, known := language.Say(p.Detail)
	if !known {
		detail = language.Text(wire.KindOf(p.Code).Means)
	}
	p.Title, p.Detail = language.Text(p.Title), detail
	fields := make([]model.FieldError, len(p.Errors)) // those of the error may be shared
	for i, field := range p.Errors {
		message, known := language.Say(field.Message)
		if !known {
			message = language.Text("is not valid")
		}
		fields[i] = model.FieldError{Location: field.Location, Message: message}
	}
	if len(fields) > 0 {
		p.Errors = fields
	}
}
