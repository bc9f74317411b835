package model

import "time"

// Instance is one process of the service that is alive.
type Instance struct {
	ID      string    `json:"id"`   // each start of a process has another
	Name    string    `json:"name"` // the machine and the port of its main listener
	Role    string    `json:"role"`
	Mode    OrderMode `json:"mode"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // on Redis' clock, as SeenAt
	SeenAt  time.Time `json:"-"`
}
