package handler

import (
	"context"

	"seckill/internal/words"
)

// speak says the title of a problem in the language that the request's Accept-Language asks for.
func (a *api) speak(ctx context.Context, p *Problem) *Problem {
	if p.language == nil {
		p.in(a.words.Asked(callOf(ctx).accepts))
	}
	return p
}

// in says the title in a language. The detail and the fields are in English: they are written for
// programmers, and programs switch on the code.
func (p *Problem) in(language *words.Language) {
	p.language = language
	p.Title = language.Text(p.Title)
}
