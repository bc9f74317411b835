package ratelimit

import (
	"time"

	"seckill/model"
)

// quota is a limit as the generic cell rate algorithm has it (ITU-T I.371, annex A; the virtual scheduling algorithm).
// Of a sender it needs one number: the instant at which nothing of the quota is in use any more. Every event moves that
// instant on by the time in which one event is given back; an event that would move it further ahead of the present
// than the capacity is refused.
type quota struct {
	emission time.Duration // in which one event is given back
	capacity time.Duration // in which all of them are
	burst    int64         // events that may come at once
}

// quotaOf allows the events of a rate at once, or those of atLeast where that is longer.
func quotaOf(r model.Rate, atLeast time.Duration) quota {
	burst := int64(r.Events)
	if r.Per < atLeast {
		burst *= int64(atLeast / r.Per)
	}
	emission := max(r.Per/time.Duration(r.Events), 1)
	return quota{emission: emission, capacity: emission * time.Duration(burst), burst: burst}
}

// take moves idle, the instant at which nothing is in use any more, in ns, on by one
// event. When the event must wait, it tells how long, and nothing is taken.
func (q quota) take(idle, now int64) (next int64, wait time.Duration) {
	idle = max(idle, now)
	if wait := time.Duration(idle-now) + q.emission - q.capacity; wait > 0 {
		return idle, wait
	}
	return idle + int64(q.emission), 0
}
