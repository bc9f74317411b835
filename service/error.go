package service

import (
	"errors"

	"seckill/model"
)

// undone makes an error of the machinery an UNAVAILABLE, and leaves alone what
// the domain has answered.
func undone(detail string, err error) error {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err
	}
	return model.Unavailable(detail, err)
}
