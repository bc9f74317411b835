package command

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"

	"seckill/config"
	"seckill/internal/app"
	"seckill/model"
)

// firstAdmin is the username of the administrator whom the first start makes.
const firstAdmin = "admin"

// consoleDoor tells where the console of an embedded server is, and how to get in. On a
// database without administrators it makes one, if a person reads the output: any other
// output is a log, in which no password belongs. What goes wrong with that stops no server.
func (p Process) consoleDoor(ctx context.Context, cfg config.Config) string {
	if !cfg.Console {
		return ""
	}
	text, secret := doorOpen, ""
	err := p.withDatabase(ctx, cfg, func(db *app.Database) error {
		admins, err := db.Administrators().List(ctx)
		if err != nil || len(admins) > 0 {
			return err
		}
		text = doorWithoutAccounts
		if !onTerminal(p.Stdout) {
			return nil
		}
		made := newPassword()
		_, err = db.Administrators().Create(ctx, firstAdmin, made, model.LevelAdmin)
		if model.CodeOf(err) == model.CodeConflict { // a buyer has the name
			return nil
		}
		if err == nil {
			text, secret = doorOnce, made
		}
		return err
	})
	if err != nil {
		p.newLogger(cfg).WarnContext(ctx, "there may be no administrator", slog.Any("error", err))
	}
	return strings.NewReplacer("{admin}", firstAdmin, "{password}", secret).Replace(text)
}

// newPassword is one that cannot be guessed and that a person can type: 80 random bits.
func newPassword() string {
	letters := strings.ToLower(rand.Text())
	return strings.Join([]string{letters[:4], letters[4:8], letters[8:12], letters[12:16]}, "-")
}

const (
	doorOpen = `
  Open in a browser:

    {base}/console
`
	doorOnce = doorOpen + `
    username     {admin}
    password     {password}     shown only now; another one: seckill admin passwd --data-dir {dir} --username {admin}
`
	doorWithoutAccounts = doorOpen + `
    for administrators; make an account: seckill admin create --data-dir {dir} --username NAME
`
)
