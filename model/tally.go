package model

import "time"

// Tally is what became of the attempts to buy one voucher at one instance, since that instance began to count.
type Tally struct {
	At     time.Time         `json:"at"`     // on the instance's clock
	Placed map[string]uint64 `json:"placed"` // attempts by what became of them: OK or the problem's code
	Took   []uint64          `json:"took"`   // attempts by how long they took: up to each of TallyBounds, and longer
}

// TallyBounds are how long attempts take, in seconds: from an answer out of memory to the longest that the contract allows.
func TallyBounds() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6}
}

// Takings are a voucher's orders of one status.
type Takings struct {
	Orders int64
	Amount int64 // what they cost together, in minor units
}
