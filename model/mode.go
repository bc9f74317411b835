package model

// OrderMode is how orders reach the database.
type OrderMode string

// The modes.
const (
	ModeSync  OrderMode = "sync"
	ModeAsync OrderMode = "async"
)

// ModeRecord is what the database says about how it is sold from.
type ModeRecord struct {
	Mode OrderMode
	// SwitchingTo is set while `seckill mode` is at work: nothing is sold.
	SwitchingTo OrderMode
	// Deployment names this database towards queues and locks that several
	// deployments may share: 16 characters of [a-z0-9].
	Deployment string
}

// Serves reports whether instances of a mode may sell.
func (r ModeRecord) Serves(mode OrderMode) bool { return r.Mode == mode && r.SwitchingTo == "" }
