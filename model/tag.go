package model

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// tagBytes is enough that two versions of one voucher never share a tag by chance.
const tagBytes = 12

// Tag stands for all that administrators decide about a voucher. Sales do not move it,
// nor does a rebuilt hot copy, which moves Revision. It is made of the members
// themselves, so that a voucher that is shown with the stock of a hot copy that is
// behind never has the tag of the voucher in the database.
func (v Voucher) Tag() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%q\n%q\n%d %d %s %d\n%d %d %s", v.ID, v.Title, v.Description,
		v.Price, v.FaceValue, v.Currency, v.Stock, v.BeginAt.UnixMicro(), v.EndAt.UnixMicro(), v.State))
	return hex.EncodeToString(sum[:tagBytes])
}

// Tags is the precondition of a change: the voucher must have one of them. Nil asks for
// nothing.
type Tags []string

// Check is PRECONDITION_FAILED when the voucher, as it is before the change, has none of
// the tags.
func (t Tags) Check(v Voucher) error {
	if t == nil || slices.Contains(t, v.Tag()) {
		return nil
	}
	return &Error{
		Code:   CodePreconditionFailed,
		Detail: "The voucher was changed since you read it. Read it again, and decide again.",
	}
}
