package command

import (
	"errors"
	"strings"

	"seckill/model"
)

// explain words an error for the person at the command line: what was tried,
// then the domain's answer in its words for people, then what went wrong
// underneath, which clients never see but the operator must.
func explain(err error) string {
	answer, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err.Error()
	}
	text := answer.Detail
	if len(answer.Fields) > 0 {
		messages := make([]string, len(answer.Fields))
		for i, field := range answer.Fields {
			messages[i] = field.Message
		}
		text = strings.Join(messages, " ")
	}
	if answer.Cause != nil {
		text += " (" + answer.Cause.Error() + ")"
	}
	return strings.Replace(err.Error(), answer.Error(), text, 1)
}
