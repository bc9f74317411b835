package payment_test

import (
	"testing"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
)

// A provider tells one buyer from another, at every instance and after every start, and learns of none who it is.
func TestNamesOfBuyers(t *testing.T) {
	t.Parallel()
	const secret = "a key of codes in tests, 32 bytes or more"
	here, there := check.Value(payment.NewBuyers(secret))(t), check.Value(payment.NewBuyers(secret))(t)
	foreign := check.Value(payment.NewBuyers(secret + "!"))(t)
	name := here.Name("42")
	check.Equal(t, "the name at another instance", there.Name("42"), name)
	if len(name) != 43 {
		t.Errorf("the name is %q", name)
	}
	if other := here.Name("43"); other == name {
		t.Error("two buyers have one name")
	}
	if foreign.Name("42") == name {
		t.Error("the name does not depend on the secret")
	}
}
