package command

import (
	"errors"
	"fmt"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"plain": errors.New("plain"),
		"create it: Names are longer. Passwords too.": fmt.Errorf("create it: %w", &model.Error{
			Code: model.CodeValidation, Detail: "The request is not valid.",
			Fields: []model.FieldError{{Message: "Names are longer."}, {Message: "Passwords too."}},
		}),
		"audit v: There is no such voucher.":     fmt.Errorf("audit v: %w", model.NotFound("voucher")),
		"It is away. (dial tcp: no route)":       model.Unavailable("It is away.", errors.New("dial tcp: no route")),
		"open: It is away. (closed)\nand closed": errors.Join(fmt.Errorf("open: %w", model.Unavailable("It is away.", errors.New("closed"))), errors.New("and closed")),
	} {
		check.Equal(t, "the explanation", explain(err), want)
	}
}
