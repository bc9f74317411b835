package app

import (
	"log/slog"
	"net/http"

	"seckill/handler/console"
	"seckill/internal/token"
	"seckill/service"
)

// openConsole makes what people see in a browser; nil where the settings want none.
func (i *Instance) openConsole(sale sale, accounts *service.Accounts, tokens *token.Authority) (http.Handler, error) {
	if !i.cfg.Console {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	return console.New(console.Options{
		Vouchers: sale.vouchers,
		Accounts: accounts,
		Health:   i.health,
		Tokens:   tokens,
		Metrics:  i.registry,
		Currency: i.cfg.Currency,
		Log:      i.log.With(slog.String("part", "console")),
	})
}
